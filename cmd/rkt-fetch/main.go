// Command rkt-fetch gets images from the network for rkt, which starts it when
// it needs it and talks to it over a socket. It has no rights and keeps nothing.
//
//go:debug updatemaxprocs=0
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/stage0/transport"
	"github.com/rkt-pods/rkt/stage0/transport/confine"
)

// failed is the exit code of every failure, as with rkt.
const failed = 254

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "rkt-fetch:", err)
		os.Exit(failed)
	}
}

func run() error {
	mode := fetchwire.Mode("")
	if len(os.Args) == 2 {
		mode = fetchwire.Mode(os.Args[1])
	}
	conn, err := fetchwire.Inherited()
	if err != nil {
		return err
	}
	sandbox, err := confine.Enter(mode)
	if err != nil {
		return err
	}
	return transport.Serve(context.Background(), conn, mode, sandbox)
}
