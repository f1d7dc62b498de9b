package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/ref"
)

// helperDeadline is how long a credential helper may take: some ask a cloud for
// a token.
const helperDeadline = 30 * time.Second

// maxHelper bounds what a helper prints.
const maxHelper = 64 << 10

// What a helper says and means.
const (
	helperPrefix   = "docker-credential-"
	helperNotFound = "credentials not found in native keychain"
	helperToken    = "<token>" // as user: the secret is an identity token
	helperDocker   = "https://index." + ref.DockerHost + "/v1/"
)

// ask runs a credential helper: "get", the registry on its stdin, an answer in
// JSON on its stdout.
func (c *Chain) ask(ctx context.Context, name, host string, step *Step) (Credential, error) {
	step.Helper = helperPrefix + name
	server := host
	if registryOf(host) == ref.DockerHost {
		server = helperDocker
	}
	out, err := c.runHelper(ctx, name, server)
	if err != nil {
		return Credential{}, errs.Newf(errs.ClassOf(err), "%s: %w", step.Helper, err)
	}
	if out == nil {
		step.State = NoEntry
		return Credential{}, nil
	}
	var answer struct{ Username, Secret string }
	if err := json.Unmarshal(out, &answer); err != nil {
		// What it printed may be a secret.
		return Credential{}, errs.Newf(errs.Unavailable, "%s: its answer is not valid JSON", step.Helper)
	}
	step.Key = server
	switch {
	case answer.Secret == "":
		step.Key = ""
		return Credential{}, nil
	case answer.Username == helperToken:
		return Credential{Identity: answer.Secret}, nil
	}
	return Credential{User: answer.Username, Password: answer.Secret}, nil
}

func (c *Chain) findHelper(name string) (string, error) {
	if strings.ContainsAny(name, "/\x00") {
		return "", errs.Newf(errs.Usage, "%q: not the name of a helper", name)
	}
	for _, dir := range c.path {
		path := filepath.Join(dir, helperPrefix+name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errs.Newf(errs.NotFound, "not in %s", strings.Join(c.path, ":"))
}

// runHelper returns what the helper prints, nil if it has no credential. It runs
// in a process group of its own, so that what it starts goes with it.
func (c *Chain) runHelper(ctx context.Context, name, server string) ([]byte, error) {
	path, err := c.findHelper(name)
	if err != nil {
		return nil, err
	}
	if err := fault.Step("auth.helper"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.helper)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "get")
	cmd.Env = c.helperEnv()
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(server)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &atMost{&out, maxHelper}, &atMost{&errOut, maxHelper}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	kill := func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.Cancel = kill
	cmd.WaitDelay = time.Second
	if err = cmd.Start(); err == nil {
		// As long as the helper is not waited for, its number is nobody else's,
		// and the rest of its group can be killed by it.
		waitExit(cmd.Process.Pid)
		_ = kill() // nobody may be left
		err = cmd.Wait()
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, errs.Newf(errs.Unavailable, "no answer within %v", c.helper)
	case ctx.Err() != nil:
		return nil, errs.WithClass(errs.Unavailable, context.Cause(ctx))
	case err == nil:
		return append([]byte{}, out.Bytes()...), nil // not nil, also if it said nothing
	case strings.TrimSpace(out.String()) == helperNotFound:
		return nil, nil
	}
	said := strings.TrimSpace(errOut.String())
	if said == "" {
		said = strings.TrimSpace(out.String()) // where helpers print errors
	}
	return nil, errs.Newf(errs.Unavailable, "%w: %q", err, said)
}

// waitExit waits until a child has ended and leaves it to be waited for.
func waitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// helperEnv is this program's environment with the home that belongs to the user
// and the path that helpers are looked for in.
func (c *Chain) helperEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "HOME=") || strings.HasPrefix(e, "PATH=")
	})
	return append(env, "HOME="+c.home, "PATH="+strings.Join(c.path, ":"))
}

// atMost takes so many bytes and drops the rest: an answer that is cut is not
// valid any more, and a helper that never ends has a deadline.
type atMost struct {
	to   *bytes.Buffer
	left int
}

// Write implements io.Writer.
func (a *atMost) Write(p []byte) (int, error) {
	n := min(len(p), a.left)
	a.left -= n
	a.to.Write(p[:n]) // never fails, says package bytes
	return len(p), nil
}
