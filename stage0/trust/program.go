package trust

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/stage0/libexec"
	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
)

// Program is the name of the program that knows signatures.
const Program = "rkt-verify"

// programDeadline bounds one question: it is arithmetic, and reads no file.
const programDeadline = 30 * time.Second

// maxAnswer bounds what the program may write: it reads bytes of strangers.
const maxAnswer = 16 << 20

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
	if err := fault.Step("trust.ask"); err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, programDeadline)
	defer cancel()
	out, err := run(ctx, p.program, in)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(out, &a); err != nil {
		return a, errs.Newf(errs.Internal, "%s: its answer is not valid JSON: %w", Program, err)
	}
	return a, nil
}

// run gives the program its input and returns its output.
func run(ctx context.Context, program string, in []byte) ([]byte, error) {
	out, errOut := &limited{left: maxAnswer}, &limited{left: 4 << 10}
	p, err := libexec.Start(ctx, Program, program, nil, func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), out, errOut
	})
	if err != nil {
		return nil, err
	}
	<-p.Done()
	err = p.Err()
	switch {
	case ctx.Err() != nil:
		return nil, errs.Newf(errs.Unavailable, "%s: %w", Program, context.Cause(ctx))
	case out.over:
		return nil, errs.Newf(errs.Internal, "%s: answers too much", Program)
	case err != nil:
		return nil, errs.Newf(errs.Internal, "%s: %w: %q", Program, err, errOut.String())
	}
	return out.Bytes(), nil
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
