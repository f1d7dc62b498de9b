package supervise

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// errInterrupted is the cause of a context that a stop has ended.
var errInterrupted = errors.New("interrupted by a stop")

// stoppedRelease is how long a pod that was asked to stop waits for plugins
// that release its networks. gc has more patience.
const stoppedRelease = 5 * time.Second

// interruptible is for what waits for programs of others while there is no
// event loop. A stop ends the context; whatever comes meanwhile is kept for the
// loop. The second result ends this, and says whether there was a stop.
func (p *pod) interruptible() (ctx context.Context, finish func() bool) {
	ctx, cancel := context.WithCancelCause(p.ctx)
	over, finished := make(chan struct{}), make(chan struct{})
	calls := p.calls
	select {
	case <-p.over: // nobody would answer
		calls = nil
	default:
	}
	go func() {
		defer close(finished)
		for {
			select {
			case s := <-p.signals:
				p.early = append(p.early, func() { p.signal(s) })
				if asksToEnd(s) {
					cancel(errInterrupted)
				}
			case c := <-calls:
				if c.Op != opStop || c.App != "" {
					p.late = append(p.late, c)
					continue
				}
				p.early = append(p.early, func() { p.call(c) })
				cancel(errInterrupted)
			case <-over:
				return
			}
		}
	}()
	return ctx, func() bool {
		close(over)
		<-finished
		stopped := errors.Is(context.Cause(ctx), errInterrupted)
		cancel(nil)
		return stopped
	}
}

func asksToEnd(s os.Signal) bool {
	return s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGQUIT
}

// catchUp does before the loop's first event what spares the apps their start.
func (p *pod) catchUp() {
	for _, do := range p.early {
		do()
	}
	p.early = nil
	for {
		select {
		case s := <-p.signals:
			p.signal(s)
		default:
			return
		}
	}
}
