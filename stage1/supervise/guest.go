package supervise

import (
	"context"
	"errors"
	"os"

	"github.com/rkt-pods/rkt/stage1/launch"
)

// guest is what stands between the caller's streams and those of a program
// that enters an app: a pty of the app's if the caller sits at a terminal, else
// a pipe for each stream that is one. All others are the caller's own.
type guest struct {
	env     Env
	tty     *terminal
	feed    *feed
	streams []*stream
	outputs []*output
	close   []*os.File // the program's ends
	stdio   launch.Stdio
}

func openGuest(env Env, tty bool) (*guest, error) {
	g := &guest{env: env, stdio: launch.Stdio{Stdin: env.Stdin, Stdout: env.Stdout, Stderr: env.Stderr}}
	var err error
	if tty && isTerminal(env.Stdin) && isTerminal(env.Stdout) {
		err = g.takeTerminal()
	} else {
		err = errors.Join(g.replaceInput(), g.replaceOutput())
	}
	if err != nil {
		g.finish(context.Background())
		return nil, err
	}
	return g, nil
}

func (g *guest) takeTerminal() (err error) {
	if g.tty, err = openTerminal(g.env.Stdin); err != nil {
		return err
	}
	if err := g.tty.raw(); err != nil {
		return err
	}
	g.stdio = launch.Stdio{TTY: true}
	g.stdio.Width, g.stdio.Height = g.tty.size()
	return nil
}

func (g *guest) replaceInput() (err error) {
	if !isTerminal(g.env.Stdin) {
		return nil
	}
	if g.feed, g.stdio.Stdin, err = openFeed(g.env.Stdin); err == nil {
		g.close = append(g.close, g.stdio.Stdin)
	}
	return err
}

func (g *guest) replaceOutput() error {
	out, errout := isTerminal(g.env.Stdout), isTerminal(g.env.Stderr)
	if out {
		w, err := g.pipeTo(g.env.Stdout)
		if err != nil {
			return err
		}
		g.stdio.Stdout = w
		// One pipe for both keeps what came first in front.
		if errout && sameFile(g.env.Stdout, g.env.Stderr) {
			g.stdio.Stderr = w
			return nil
		}
	}
	if !errout {
		return nil
	}
	w, err := g.pipeTo(g.env.Stderr)
	g.stdio.Stderr = w
	return err
}

// pipeTo returns the end to hand on of a pipe that is copied to the file.
func (g *guest) pipeTo(f *os.File) (*os.File, error) {
	r, w, err := newPipe(-1, -1) // the launcher gives it to the program's user
	if err != nil {
		return nil, err
	}
	g.close = append(g.close, w)
	g.copy(r, f)
	return w, nil
}

func (g *guest) copy(from, to *os.File) {
	out := newOutput(to)
	s := &stream{from: from, to: &lines{to: out}}
	s.pump()
	g.outputs, g.streams = append(g.outputs, out), append(g.streams, s)
}

// started is called once the program has its own descriptors.
func (g *guest) started(p launch.Process) {
	g.closeEnds()
	g.feed.start()
	if g.tty != nil {
		g.copy(p.Console(), g.env.Stdout)
		g.tty.join(p.Console())
	}
}

func (g *guest) closeEnds() {
	for _, f := range g.close {
		_ = f.Close() // only handed on
	}
	g.close = nil
}

// finish returns once the caller has all that the program wrote.
func (g *guest) finish(ctx context.Context) {
	g.closeEnds()
	g.feed.close()
	for _, s := range g.streams {
		s.finish()
	}
	for _, o := range g.outputs {
		o.flush(ctx)
		o.close()
	}
	g.tty.close()
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	if err != nil {
		return false
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y)
}
