// Hello is the smallest useful Go program, built as rkt is: what any command
// written in Go costs on this host.
package main

import (
	"fmt"
	"os"
)

func main() {
	if _, err := fmt.Println("hello, world"); err != nil {
		os.Exit(1)
	}
}
