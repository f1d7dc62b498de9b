// Command say sends its arguments, a line each, to $NOTIFY_SOCKET and waits
// until they have been read, as systemd-notify(1) does. It is for apps of test
// pods whose image has no such program.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if err := say(strings.Join(os.Args[1:], "\n")); err != nil {
		fmt.Fprintln(os.Stderr, "say:", err)
		os.Exit(1)
	}
}

func say(text string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := &unix.SockaddrUnix{Name: os.Getenv("NOTIFY_SOCKET")}
	if err := unix.Sendmsg(fd, []byte(text), unix.UnixRights(int(w.Fd())), to, 0); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	// The end of the pipe is the reader's answer.
	_, err = io.Copy(io.Discard, r)
	return err
}
