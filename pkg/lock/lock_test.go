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

	"golang.org/x/sys/unix"

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

// TestBusyWaitsForTheName: who loses hears the winner's name also when that is
// written a moment after the lock is there, and one name from before it. A
// holder that writes none is not waited for without end.
func TestBusyWaitsForTheName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for _, before := range []string{"", `{"pid":999999999,"command":"the one before"}`} {
		f, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := setlk(f, exclusive); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := TryExclusive(path); !errs.Is(err, errs.Busy) || strings.Contains(err.Error(), "pid") || len(errs.Hints(err)) != 1 {
			t.Errorf("unsigned: %v", err)
		}
		time.AfterFunc(20*time.Millisecond, func() { _ = (&Lock{f}).sign() })
		_, err = TryExclusive(path)
		if !errs.Is(err, errs.Busy) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) || len(errs.Hints(err)) != 1 {
			t.Errorf("signed later: %v", err)
		}
		_ = f.Close()
	}
}

// TestSharersAreNotAsked: nobody waits for a name that never comes.
func TestSharersAreNotAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := TryShared(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	begin := time.Now()
	for range 20 {
		if _, err := TryExclusive(path); !errs.Is(err, errs.Busy) {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took > 10*signTime {
		t.Errorf("took %s", took)
	}
}

// TestNoLockFile: what is no regular file is an error at once, for who asks and
// for who locks.
func TestNoLockFile(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"fifo":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"loop":   func(path string) error { return os.Symlink(path, path) },
	} {
		path := filepath.Join(t.TempDir(), "lock")
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Held(path); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: held: %v", name, err)
		}
		if _, err := TryExclusive(path); !errs.Is(err, errs.Corrupt) || len(errs.Hints(err)) != 1 {
			t.Errorf("%s: lock: %v", name, err)
		}
		if _, err := ReadHolder(path); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: holder: %v", name, err)
		}
	}
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
