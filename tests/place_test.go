package tests

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// place is a mount namespace of its own, where file systems are mounted that
// the host never sees.
type place struct {
	t   *testing.T
	pid int    // who keeps the namespace
	dir string // a folder of the host, $DIR of the scripts
}

// newPlace runs a shell script in a new mount namespace, which lives until the
// test ends; then the script's teardown runs there.
func newPlace(t *testing.T, setup, teardown string) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir()}
	var stderr bytes.Buffer
	cmd := exec.Command("sh", "-ec", setup+"\necho ready\nread -r end || :\n"+teardown)
	cmd.Env = append(os.Environ(), "DIR="+p.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // the script may have ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("script in a mount namespace: %v\n%s", err, &stderr)
		}
	})
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == "ready" {
			p.pid = cmd.Process.Pid
			return p
		}
	}
	t.Fatal("the file system of this test can't be mounted")
	return nil
}

// sh runs a shell script there.
func (p *place) sh(script string) result {
	p.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", p.pid), "sh", "-ec", script)
	cmd.Env = append(os.Environ(), "DIR="+p.dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return (&host{t: p.t}).finish(cmd, []string{script}, cmd.Run(), &stdout, &stderr)
}

// must runs a shell script that has to end with 0, and returns what it says.
func (p *place) must(script string) string {
	p.t.Helper()
	res := p.sh(script)
	if res.code != 0 {
		p.t.Fatal(res)
	}
	return res.stdout
}

// rkt is the beginning of a command line for sh.
func (p *place) rkt(data string) string {
	return fmt.Sprintf("%s --dir='%s' --insecure-options=image ", filepath.Join(bin, "rkt"), data)
}

// host is the data folder as the host sees it.
func (p *place) host(data string) string { return fmt.Sprintf("/proc/%d/root%s", p.pid, data) }

// collect collects everything and checks that nothing is left.
func (p *place) collect(data string) {
	p.t.Helper()
	p.must(p.rkt(data) + "gc --grace-period=0s --expire-prepared=0s")
	if err := leftovers(p.host(data)); err != nil {
		p.t.Error(err)
	}
}

// refused checks that a command has ended with 254, one line about each of
// these words, and a hint.
func refused(t *testing.T, res result, words ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(res.stderr), "\n")
	ok := res.code == 254 && len(lines) == 2 && strings.Contains(lines[1], ": hint: ")
	for _, w := range words {
		ok = ok && strings.Contains(lines[0], w)
	}
	if !ok {
		t.Errorf("want 254, a line with %q and a hint: %s", words, res)
	}
}
