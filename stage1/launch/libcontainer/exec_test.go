package libcontainer

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/rkt-pods/rkt/stage1/launch"
)

// What execPart is to run: see partExec.
const (
	execStateEnv = "RKT_TEST_STATE"
	execIDEnv    = "RKT_TEST_ID"
	execArgvEnv  = "RKT_TEST_ARGV"
)

// execPart is `enter`: another process than the supervisor, with streams of
// its own.
func execPart() int {
	p, err := New(Options{}).Exec(context.Background(), os.Getenv(execStateEnv), os.Getenv(execIDEnv), launch.Exec{
		Argv:  strings.Split(os.Getenv(execArgvEnv), "\n"),
		Stdio: launch.Stdio{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 254
	}
	exit, err := p.Wait()
	if err == nil {
		err = p.Destroy()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 254
	}
	return exit.Status.ExitStatus()
}
