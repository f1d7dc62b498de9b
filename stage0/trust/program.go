package trust

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
)

// Program is the name of the program that knows signatures.
const Program = "rkt-verify"

// programDeadline bounds one question: it is arithmetic, and reads no file.
const programDeadline = 30 * time.Second

// maxAnswer bounds what the program may write: it reads bytes of strangers.
const maxAnswer = 16 << 20

// nobody is the user and group that the program runs as.
const nobody = 65534

// find returns the program's path: beside rkt, or where it is installed.
func find(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", Program, err)
	}
	dir := filepath.Dir(self)
	places := []string{filepath.Join(dir, Program), filepath.Join(dir, "../libexec/rkt", Program)}
	for _, path := range places {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errs.WithHint(errs.Newf(errs.NotFound, "find %s: neither %s nor %s is there", Program, places[0], places[1]),
		"\"make\" builds it beside rkt; without it no signature can be checked")
}

// ask gives the program one question. It runs without root, environment and
// capabilities, and dies with this program.
func (p Policy) ask(ctx context.Context, req sigwire.Request) (sigwire.Answer, error) {
	var a sigwire.Answer
	req.Now = p.time().UTC()
	in, err := json.Marshal(req)
	if err != nil {
		return a, err
	}
	if len(in) > sigwire.MaxRequest {
		return a, errs.Newf(errs.Usage, "trusted keys: larger than %d MiB together", sigwire.MaxRequest>>20)
	}
	program, err := find(p.program)
	if err != nil {
		return a, err
	}
	if err := fault.Step("trust.ask"); err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, programDeadline)
	defer cancel()
	out, err := runConfined(ctx, program, in)
	if err != nil {
		return a, fmt.Errorf("%s: %w", Program, err)
	}
	if err := json.Unmarshal(out, &a); err != nil {
		return a, errs.Newf(errs.Internal, "%s: its answer is not valid JSON: %w", Program, err)
	}
	return a, nil
}

// runConfined opens the program as root and runs it as nobody, so that it may
// lie where nobody can't go: it is executed by descriptor.
func runConfined(ctx context.Context, program string, in []byte) ([]byte, error) {
	f, err := os.Open(program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, "/proc/self/fd/3")
	cmd.Args = []string{Program}
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stdin = bytes.NewReader(in)
	out := &limited{left: maxAnswer}
	errOut := &limited{left: 4 << 10}
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWIPC
	}
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, errs.WithClass(errs.Unavailable, context.Cause(ctx))
	case out.over:
		return nil, errs.Newf(errs.Internal, "answers too much")
	case err != nil && errOut.Len() > 0:
		return nil, errs.Newf(errs.Internal, "%w: %q", err, errOut.String())
	}
	return out.Bytes(), err
}

// limited is a buffer that takes no more than it may.
type limited struct {
	bytes.Buffer
	left int
	over bool
}

var errOver = errors.New("too much output")

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		l.over = true
		return 0, errOver
	}
	l.left -= len(p)
	return l.Buffer.Write(p)
}
