package supervise

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/poddir"
)

// herald tells the service manager that started rkt how the pod fares
// (sd_notify(3)). A nil herald has nobody to tell.
type herald struct {
	conn     *net.UnixConn
	status   string // as told last
	stopping bool
}

// newHerald connects to the socket of $NOTIFY_SOCKET, a path or an abstract
// name. An error means that nobody listens.
func newHerald(socket string) (*herald, error) {
	if socket == "" {
		return nil, nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return &herald{conn: c}, nil
}

func (h *herald) send(lines ...string) error {
	if h == nil {
		return nil
	}
	if err := h.conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := h.conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return nil
}

// watchdog is the channel that says when the service manager wants to hear
// that the event loop lives: twice as often as it would lose its patience. An
// app is watched by its own liveness probe and not by this.
func (h *herald) watchdog(interval time.Duration) (ticks <-chan time.Time, stop func()) {
	if h == nil || interval <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(max(interval/2, time.Millisecond))
	return t.C, t.Stop
}

func (h *herald) close() {
	if h != nil {
		_ = h.conn.Close() // nothing is kept in it
	}
}

// proclaim tells of what has changed: the files first, then the service
// manager.
func (p *pod) proclaim() {
	ready, awaiting := p.machine.Ready(), p.awaiting()
	was := p.records.summary.Ready
	p.records.readiness(ready, awaiting)
	h := p.herald
	if h == nil {
		return
	}
	status := awaiting
	var words []string
	switch {
	case p.machine.Ending():
		status = "stopping"
		if !h.stopping {
			h.stopping = true
			words = append(words, "STOPPING=1")
		}
	case ready:
		status = "ready"
		if !was {
			words = append(words, "READY=1")
		}
	}
	if status != h.status {
		h.status = status
		words = append(words, "STATUS="+status)
	}
	if len(words) > 0 {
		if err := h.send(words...); err != nil {
			p.reportOnce("notify", err)
		}
	}
}

// awaiting says in one line what the pod's being ready waits for.
func (p *pod) awaiting() string {
	if p.machine.Ready() || p.machine.Ending() {
		return ""
	}
	var list []string
	for _, w := range p.machine.Awaiting() {
		switch {
		case w.For != "":
			list = append(list, fmt.Sprintf("%s after %s is %s", w.App, w.For, w.Condition))
		default:
			list = append(list, w.App+" "+p.stateOf(w.App))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "waits for " + strings.Join(list, ", ")
}

// stateOf says why an app that was begun is not ready.
func (p *pod) stateOf(app string) string {
	s := p.records.status[app]
	switch {
	case s.State == poddir.Backoff:
		return "(starts again soon)"
	case s.State == poddir.Exited && s.ExitCode != nil:
		return fmt.Sprintf("(ended with %d)", *s.ExitCode)
	case s.State == poddir.Exited:
		return "(" + string(s.Reason) + ")"
	}
	return "(" + string(s.State) + ")"
}
