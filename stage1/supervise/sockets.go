package supervise

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/network"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// openSockets makes ready what socket-activated apps get: descriptors that rkt
// was given, and those that have to be opened. They are the pod's as long as it
// lives, so that no connection is lost while an app is restarted.
func (p *pod) openSockets(planned plan.Pod) error {
	for _, s := range planned.Network.Unclaimed {
		err := errs.Newf(errs.Usage, "descriptor %d (%s): no socket-activated port of the pod takes it", s.FD, describe(s))
		p.report(errs.WithHint(err, "the image's port says socketActivated, and its number, or that of --port, is the socket's"))
		_ = unix.Close(s.FD) // only kept
	}
	p.sockets = map[string][]launch.Socket{}
	for _, a := range p.apps {
		name := a.plan.Name
		for _, l := range planned.Network.Listeners[name] {
			fd := l.FD
			if fd < 0 {
				var err error
				if fd, err = network.Listen(p.box.netns(), l.Protocol, l.Port); err != nil {
					return fmt.Errorf("app %s: port %s: %w", name, l.Name, err)
				}
			}
			p.sockets[name] = append(p.sockets[name], launch.Socket{FD: fd, Name: l.Name})
		}
	}
	return nil
}

// closeSockets gives all of them up.
func (p *pod) closeSockets() {
	for _, list := range p.sockets {
		for _, s := range list {
			_ = unix.Close(s.FD)
		}
	}
	p.sockets = nil
}

func describe(s plan.Socket) string {
	text := s.Name
	if s.Protocol != "" {
		text += " " + s.Protocol + " " + s.Addr.String()
	}
	if text == "" {
		text = "no name, and no port"
	}
	return text
}
