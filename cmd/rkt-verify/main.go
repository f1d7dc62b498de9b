// Command rkt-verify reads keys and signatures for rkt, which starts it without
// rights whenever a signature has to be checked: a question on its standard
// input, the answer on its standard output. It is no command for people.
//
//go:debug updatemaxprocs=0
package main

import (
	"fmt"
	"os"

	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/stage0/transport/confine"
	"github.com/rkt-pods/rkt/stage0/trust/sigcheck"
)

func main() {
	_, err := confine.Enter(fetchwire.Unpack) // no files, no network
	if err == nil {
		err = sigcheck.Serve(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		os.Exit(1)
	}
}
