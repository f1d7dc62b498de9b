package lock

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// TestMain lets the test binary be the other process that holds a lock.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv("LOCK_HOLD") != "":
		l, err := TryExclusive(os.Getenv("LOCK_HOLD"))
		fmt.Println("held", err)
		_, _ = os.Stdin.Read(make([]byte, 1))
		_ = l.Close()
		return
	case os.Getenv("LOCK_INHERIT") != "":
		fd, _ := strconv.Atoi(os.Getenv("LOCK_FD"))
		_, err := Inherit(fd, os.Getenv("LOCK_INHERIT"))
		fmt.Println("held", err)
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	os.Exit(m.Run())
}

// other starts a process that holds the lock until the returned func is called.
func other(t *testing.T, env []string, files ...*os.File) (release func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	cmd.ExtraFiles = files
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
	buf := make([]byte, 200)
	n, _ := stdout.Read(buf)
	if got := strings.TrimSpace(string(buf[:n])); got != "held <nil>" {
		t.Fatalf("the other process says %q", got)
	}
	return func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}
}

func TestBusyNamesTheHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release := other(t, []string{"LOCK_HOLD=" + path})
	_, err := TryExclusive(path)
	if !errs.Is(err, errs.Busy) || !strings.Contains(err.Error(), "pid ") {
		t.Errorf("got %v", err)
	}
	if _, err := TryShared(path); !errs.Is(err, errs.Busy) {
		t.Errorf("shared: got %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := Exclusive(ctx, path); !errs.Is(err, errs.Busy) {
		t.Errorf("wait: got %v", err)
	}
	release()
	l, err := TryExclusive(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
}

func TestWaiterGetsTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release := other(t, []string{"LOCK_HOLD=" + path})
	got := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		l, err := Exclusive(ctx, path)
		_ = l.Close()
		got <- err
	}()
	release()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestReadersTakeNothing: asking must never make a locker fail.
func TestReadersTakeNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if held, err := Held(path); held || err != nil {
		t.Errorf("missing file: %v, %v", held, err)
	}
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = Held(path)
			}
		}
	}()
	defer close(stop)
	for range 1000 {
		l, err := TryExclusive(path)
		if err != nil {
			t.Fatal(err)
		}
		if held, err := Held(path); !held || err != nil {
			t.Fatalf("held: %v, %v", held, err)
		}
		_ = l.Close()
	}
}

// TestInherited: the lock outlives the process that took it, and a rename of
// the folder, and ends with the process that inherited it.
func TestInherited(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "lock")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := TryExclusive(path)
	if err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(dir, "b", "lock")
	if err := os.Rename(filepath.Dir(path), filepath.Dir(moved)); err != nil {
		t.Fatal(err)
	}
	release := other(t, []string{"LOCK_INHERIT=" + moved, "LOCK_FD=3"}, l.f)
	_ = l.Close()
	if held, _ := Held(moved); !held {
		t.Error("not held by the heir")
	}
	release()
	if held, _ := Held(moved); held {
		t.Error("still held after the heir's end")
	}
}

func TestInheritRefusesAnotherFile(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "one"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := os.Create(filepath.Join(dir, "two")); err != nil {
		t.Fatal(err)
	}
	if _, err := Inherit(int(f.Fd()), filepath.Join(dir, "two")); err == nil {
		t.Error("another file's descriptor was taken")
	}
	if _, err := Inherit(987, filepath.Join(dir, "two")); err == nil {
		t.Error("a closed descriptor was taken")
	}
}
