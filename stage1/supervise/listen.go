package supervise

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxNotice bounds what an app may say at once.
const maxNotice = 4 << 10

// listen waits for the app's READY=1 until the execution ends (sd_notify(3)).
// Anything else that may be said is taken and means nothing.
func (a *app) listen(c *net.UnixConn) {
	stop := context.AfterFunc(a.ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf, oob := make([]byte, maxNotice), make([]byte, 1<<10)
	for {
		n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
		if err != nil {
			return // the execution has ended
		}
		pid, held := sender(oob[:oobn])
		if slices.ContainsFunc(bytes.Split(buf[:n], []byte{'\n'}), isReady) {
			if err := a.own(pid); err != nil {
				a.pod.reportOnce("notice "+a.id, fmt.Errorf("app %s: READY=1: %w", a.plan.Name, err))
			} else {
				a.ready(true)
			}
		}
		// Last: who sends a descriptor waits for its end, to know that the
		// notice has been taken (BARRIER=1).
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}
}

func isReady(line []byte) bool { return string(line) == "READY=1" }

// sender reads what the kernel says of who sent a message, and the descriptors
// that came with it.
func sender(oob []byte) (pid int, fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, nil
	}
	for _, m := range messages {
		if cred, err := unix.ParseUnixCredentials(&m); err == nil {
			pid = int(cred.Pid)
		}
		if more, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, more...)
		}
	}
	return pid, fds
}

// own makes sure that the process is one of the app: another app of the pod
// may get at the socket, if it runs as the same user. A process that is gone
// by now can't be asked; sd_notify_barrier(3) waits for this.
func (a *app) own(pid int) error {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return fmt.Errorf("who said it has gone: %w", err)
	}
	mine := path.Clean("/" + a.pod.groups.path(a.plan.Name))
	for line := range strings.Lines(string(data)) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && strings.HasPrefix(group, mine+"/") {
			return nil
		}
	}
	return fmt.Errorf("process %d said it, which is none of the app", pid)
}
