// Command liar is a rkt-fetch that strangers have taken over. The reference of
// the manifest that it is asked for says what it does.
package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

func main() {
	conn, err := fetchwire.Inherited()
	if err != nil {
		panic(err)
	}
	for {
		m, files, err := conn.Receive()
		if err != nil {
			return
		}
		if m.Request == nil || m.Request.Manifest == nil {
			continue
		}
		send := func(answers ...*fetchwire.Message) {
			for _, a := range answers {
				a.ID = m.ID
				_ = conn.Send(a) // until rkt hangs up
			}
		}
		head, end := &fetchwire.Message{Head: &fetchwire.Head{Size: -1}}, &fetchwire.Message{End: &fetchwire.End{}}
		switch m.Request.Manifest.Reference {
		case "two-heads":
			send(head, head)
		case "no-head":
			send(end)
		case "other-side":
			send(&fetchwire.Message{Setup: &fetchwire.Setup{}})
		case "descriptor":
			_ = conn.Send(head, os.Stderr)
		case "endless":
			send(head)
			for err == nil {
				_, err = files[0].Write(make([]byte, 1<<20))
			}
		case "short":
			_, _ = files[0].WriteString("half of it")
			send(head)
			os.Exit(0)
		case "asks":
			for id := range uint64(100) {
				_ = conn.Send(&fetchwire.Message{ID: id, Ask: &fetchwire.CredentialRequest{Kind: fetchwire.ForRegistry, Host: "reg.example"}})
			}
		case "hangs-up":
			conn.Close()
			_ = unix.Pause() // until it is killed
		case "words":
			_, _ = os.Stderr.WriteString("last \x1b[31mwords\nmore\n")
			os.Exit(2)
		case "terminal":
			send(&fetchwire.Message{End: &fetchwire.End{Failure: &fetchwire.Failure{Class: errs.Denied, Message: "\x1b]0;title\a"}}})
		default: // a stranger's id first
			_ = conn.Send(&fetchwire.Message{ID: m.ID + 1000, End: &fetchwire.End{}})
			_, _ = files[0].WriteString("honest")
			send(head, end)
		}
		for _, f := range files {
			f.Close()
		}
	}
}
