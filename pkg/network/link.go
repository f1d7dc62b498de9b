package network

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/fault"
)

// HostLink is the name of the host's end of an interface of TypePTP. It is
// computed wherever it is needed, so that no record can name another link.
func HostLink(containerID, ifName string) string {
	sum := sha256.Sum256([]byte(containerID + "/" + ifName))
	return fmt.Sprintf("rkt%x", sum[:6])
}

// deleteLink removes a link by its name, and with it the other end and all
// routes. One that isn't there is removed.
//
// It is one message, for which rkt need not have a netlink library.
func deleteLink(name string) error {
	if err := fault.Step("network.unlink"); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer unix.Close(fd)
	const align = unix.NLMSG_ALIGNTO - 1
	attr := unix.SizeofRtAttr + len(name) + 1
	msg := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg+(attr+align)&^align)
	native := binary.NativeEndian
	native.PutUint32(msg[0:], uint32(len(msg)))
	native.PutUint16(msg[4:], unix.RTM_DELLINK)
	native.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	at := unix.SizeofNlMsghdr + unix.SizeofIfInfomsg
	native.PutUint16(msg[at:], uint16(attr))
	native.PutUint16(msg[at+2:], unix.IFLA_IFNAME)
	copy(msg[at+unix.SizeofRtAttr:], name)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("delete link %s: %w", name, err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return fmt.Errorf("delete link %s: %w", name, err)
	}
	if n < unix.SizeofNlMsghdr+4 || native.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("delete link %s: answer not understood", name)
	}
	if errno := unix.Errno(-int32(native.Uint32(answer[unix.SizeofNlMsghdr:]))); errno != 0 && !errors.Is(errno, unix.ENODEV) {
		return fmt.Errorf("delete link %s: %w", name, errno)
	}
	return nil
}
