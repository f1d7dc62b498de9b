package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
)

// The commands that a plugin is called with.
const (
	cmdAdd    = "ADD"
	cmdDel    = "DEL"
	cmdCheck  = "CHECK"
	cmdGC     = "GC"
	maxOutput = 1 << 20 // of a plugin; more is an error
)

// Runner runs plugins.
type Runner struct {
	Dirs     []string            // where the programs are looked for, in order
	Builtin  map[string]CallFunc // those that are part of this program, by type
	Deadline time.Duration       // for each call of a plugin
}

// CallFunc is a plugin that is part of this program. Its result is that of ADD.
type CallFunc func(ctx context.Context, c Call) ([]byte, error)

// Call is one call of a plugin.
type Call struct {
	Command     string
	ContainerID string
	NetNS       string // path; "" if it is gone
	IfName      string
	Args        [][2]string
	Config      []byte // JSON, with name, version and previous result
}

// Attachment names an interface of a container.
type Attachment struct {
	ContainerID string      `json:"containerID"`
	IfName      string      `json:"ifname"`
	NetNS       string      `json:"-"`
	Args        [][2]string `json:"-"`
}

// Add makes the interface, and returns the result as the last plugin gave it.
// After an error the caller undoes with Del what there may be.
func (r *Runner) Add(ctx context.Context, l *List, a Attachment) (json.RawMessage, error) {
	var result json.RawMessage
	for _, p := range l.Plugins {
		out, err := r.call(ctx, cmdAdd, l, p, a, result, nil)
		if err != nil {
			return nil, err
		}
		if _, err := ParseResult(out); err != nil {
			return nil, fmt.Errorf("plugin %s: %w", p.Type, err)
		}
		result = out
	}
	return result, nil
}

// Del takes the interface away. It is no error if there is none, and each
// plugin is asked also when another has failed.
func (r *Runner) Del(ctx context.Context, l *List, a Attachment, result json.RawMessage) error {
	if !l.since("0.4.0") {
		result = nil
	}
	var err error
	for _, p := range slices.Backward(l.Plugins) {
		_, derr := r.call(ctx, cmdDel, l, p, a, result, nil)
		err = errors.Join(err, derr)
	}
	return err
}

// Check asks whether the interface is as it was made. Lists that forbid the
// question, or are too old for it, are as they should be.
func (r *Runner) Check(ctx context.Context, l *List, a Attachment, result json.RawMessage) error {
	if l.DisableCheck || !l.since("0.4.0") {
		return nil
	}
	for _, p := range l.Plugins {
		if _, err := r.call(ctx, cmdCheck, l, p, a, result, nil); err != nil {
			return err
		}
	}
	return nil
}

// GC lets the plugins drop what belongs to none of the valid attachments.
func (r *Runner) GC(ctx context.Context, l *List, valid []Attachment) error {
	if l.DisableGC || !l.since("1.1.0") {
		return nil
	}
	if valid == nil {
		valid = []Attachment{}
	}
	list, err := json.Marshal(valid)
	if err != nil {
		return err
	}
	for _, p := range l.Plugins {
		_, gerr := r.call(ctx, cmdGC, l, p, Attachment{}, nil, map[string]json.RawMessage{"cni.dev/valid-attachments": list})
		err = errors.Join(err, gerr)
	}
	return err
}

func (r *Runner) call(ctx context.Context, command string, l *List, p Plugin, a Attachment, prev json.RawMessage, more map[string]json.RawMessage) ([]byte, error) {
	conf := maps.Clone(p.Config)
	maps.Copy(conf, more)
	delete(conf, "cniVersions")
	conf["name"], _ = json.Marshal(l.Name) // a string: never fails
	conf["cniVersion"], _ = json.Marshal(l.Version)
	if prev != nil {
		conf["prevResult"] = prev
	}
	data, err := json.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: configuration: %w", p.Type, err)
	}
	c := Call{Command: command, ContainerID: a.ContainerID, NetNS: a.NetNS, IfName: a.IfName, Args: a.Args, Config: data}
	deadline, cancel := context.WithTimeout(ctx, r.Deadline)
	defer cancel()
	run := r.Builtin[p.Type]
	if run == nil {
		path, err := r.find(p.Type)
		if err != nil {
			return nil, err
		}
		run = func(ctx context.Context, c Call) ([]byte, error) { return r.exec(ctx, path, l.Version, c) }
	}
	out, err := run(deadline, c)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %s: %w", p.Type, strings.ToLower(command), err)
	}
	return out, nil
}

// find returns the program of a plugin.
func (r *Runner) find(name string) (string, error) {
	for _, dir := range r.Dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	err := errs.Newf(errs.NotFound, "plugin %s: in none of %s", name, strings.Join(r.Dirs, ", "))
	return "", errs.WithHint(err, "put the program into one of these folders, or correct the network's \"type\"")
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ bytes.Buffer }

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, maxOutput+1-b.Len()))])
	return len(p), nil
}

// exec runs a plugin's program. At the deadline it is killed with all that it
// has started: plugins run other plugins.
func (r *Runner) exec(ctx context.Context, path, version string, c Call) ([]byte, error) {
	if err := fault.Step("cni." + strings.ToLower(c.Command)); err != nil {
		return nil, err
	}
	var stdout, stderr bounded
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = r.environment(version, c)
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(c.Config)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // for one that left its group and holds the pipes
	began := time.Now()
	err := cmd.Run()
	said := strings.TrimSpace(stderr.String())
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		deadline, _ := ctx.Deadline() // the caller's may come before the runner's
		err := errs.Newf(errs.Unavailable, "no answer after %s, killed%s", deadline.Sub(began).Round(time.Second/10), quoted(said))
		return nil, errs.WithHint(err, "%s hangs; what it waits for may be in its own log", path)
	case ctx.Err() != nil:
		return nil, errs.Newf(errs.Unavailable, "%w, killed%s", context.Cause(ctx), quoted(said))
	case stdout.Len() > maxOutput:
		return nil, errs.Newf(errs.Corrupt, "more than %d bytes of output", maxOutput)
	case errors.Is(err, exec.ErrWaitDelay):
		return nil, errs.Newf(errs.Unavailable, "has ended, but what it started keeps its output open%s", quoted(said))
	case err != nil:
		return nil, failure(err, stdout.Bytes(), said)
	}
	return stdout.Bytes(), nil
}

func (r *Runner) environment(version string, c Call) []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "CNI_") || strings.HasPrefix(e, "PATH=") || strings.HasPrefix(e, "LISTEN_")
	})
	env = append(env, "PATH="+searchPath(os.Getenv("PATH")))
	var args []string
	if len(c.Args) > 0 {
		// What is meant for one plugin of a list is no mistake to the others.
		args = append(args, "IgnoreUnknown=1")
	}
	for _, kv := range c.Args {
		args = append(args, kv[0]+"="+kv[1])
	}
	return append(env, "CNI_COMMAND="+c.Command, "CNI_VERSION="+version, "CNI_CONTAINERID="+c.ContainerID,
		"CNI_NETNS="+c.NetNS, "CNI_IFNAME="+c.IfName, "CNI_ARGS="+strings.Join(args, ";"),
		"CNI_PATH="+strings.Join(r.Dirs, ":"))
}

// searchPath is PATH with the folders of the administrator's programs at its
// end, which cron and others leave out.
func searchPath(path string) string {
	dirs := filepath.SplitList(path)
	for _, d := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"} {
		if !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// Program finds a program as the plugins do.
func Program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, d := range filepath.SplitList(searchPath("")) {
		if path, serr := exec.LookPath(filepath.Join(d, name)); serr == nil {
			return path, nil
		}
	}
	return "", err
}

// failure is what a plugin said of its failure: JSON by the specification, else
// whatever there is.
func failure(err error, stdout []byte, stderr string) error {
	var e struct {
		Code    uint   `json:"code"`
		Msg     string `json:"msg"`
		Details string `json:"details"`
	}
	if json.Unmarshal(stdout, &e) != nil || e.Msg == "" {
		if said := strings.TrimSpace(string(stdout)); stderr == "" {
			stderr = said
		}
		return fmt.Errorf("%w%s", err, quoted(stderr))
	}
	text := e.Msg
	if e.Details != "" {
		text += "; " + e.Details
	}
	const tryAgain = 11
	if e.Code == tryAgain {
		return errs.Newf(errs.Unavailable, "%s%s", printable(text), quoted(stderr))
	}
	return fmt.Errorf("%s%s", printable(text), quoted(stderr))
}

// quoted is the end of what a plugin wrote to stderr.
func quoted(said string) string {
	const most = 500
	if said == "" {
		return ""
	}
	if len(said) > most {
		said = "…" + said[len(said)-most:]
	}
	return fmt.Sprintf(" (it said: %s)", printable(strings.ReplaceAll(said, "\n", "; ")))
}

// printable escapes what would act on a terminal.
func printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
