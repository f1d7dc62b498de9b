// Package rktfetch builds the program that tests fetch with.
package rktfetch

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// env names the program to a test's child, which must not build another one.
const env = "RKT_TEST_FETCH"

var dir string

// Main runs a package's tests and removes the program after them.
func Main(m *testing.M) int {
	code := m.Run()
	if dir != "" {
		_ = os.RemoveAll(dir) // in a temporary folder, and nothing depends on it
	}
	return code
}

// Program is the path of the program. It panics if that can't be built, as
// there is nothing to test then.
var Program = sync.OnceValue(func() string {
	if path := os.Getenv(env); path != "" {
		return path
	}
	var err error
	if dir, err = os.MkdirTemp("", "rkt-fetch-"); err != nil {
		panic(err)
	}
	path := filepath.Join(dir, "rkt-fetch")
	cmd := exec.Command("go", "build", "-o", path, "github.com/rkt-pods/rkt/cmd/rkt-fetch")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(string(out))
	}
	if err := os.Setenv(env, path); err != nil {
		panic(err)
	}
	return path
})
