package registry

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Distribution starts the distribution's own registry for a test and returns where
// it listens.
func Distribution(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		t.Fatalf("%v: `make host` installs it", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if err := l.Close(); err != nil { // taken again at once, by the registry
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %q}\n", filepath.Join(dir, "data"), at)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "serve", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended, stop := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		// The signal comes when the thread ends that started it, which a
		// goroutine has for itself only as long as it is locked to it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // or the thread would end, with what others started from it
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			<-stop
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(stop)
		<-ended
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", at)
		if err == nil {
			c.Close()
			return at
		}
		if time.Now().After(deadline) {
			t.Fatalf("the registry does not answer: %v", err)
		}
	}
}
