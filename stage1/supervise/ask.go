package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// maxSaid is how much of what a probe's program prints is told of a failure.
const maxSaid = 200

// ask runs a program inside the app, in a cgroup leaf of its own, and returns
// nil if it ends with 0. When ctx ends it is killed with all that it started.
func (a *app) ask(ctx context.Context, base launch.App, argv []string) error {
	r, w, err := newPipe(-1, -1) // the launcher gives it to the app's user
	if err != nil {
		return err
	}
	defer r.Close()
	p, err := a.pod.launcher.Exec(ctx, base.StateDir, base.ID, launch.Exec{
		Argv: argv, Stdio: launch.Stdio{Stdout: w, Stderr: w},
	})
	_ = w.Close() // only handed on
	if err != nil {
		return err
	}
	said := make(chan string, 1)
	go func() { said <- beginning(r) }()
	stop := context.AfterFunc(ctx, func() {
		// The leaf is killed whole: what the program forked may hold the
		// pipe, and must not outlive the question.
		if err := p.Destroy(); err != nil {
			a.report(err)
		}
	})
	exit, err := p.Wait()
	if stop() {
		err = errors.Join(err, p.Destroy())
	}
	text := <-said
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if x := exitOf(exit); x.Code != 0 {
		if text != "" {
			text = ": " + text
		}
		return errs.Newf(errs.Unavailable, "exit code %d%s", x.Code, text)
	}
	return nil
}

// beginning reads to the end, so that nobody who writes has to wait, and keeps
// what can be shown in a line.
func beginning(r io.Reader) string {
	var b bytes.Buffer
	_, _ = io.Copy(&b, io.LimitReader(r, maxSaid)) // a pipe that breaks has ended
	_, _ = io.Copy(io.Discard, r)
	text := strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return ' '
	}, strings.ToValidUTF8(b.String(), "?"))
	return strings.Join(strings.Fields(text), " ")
}

// refused is an answer, and not the one that was hoped for.
func refused(what string, err error) error {
	return errs.WithClass(errs.Unavailable, fmt.Errorf("%s: %w", what, err))
}
