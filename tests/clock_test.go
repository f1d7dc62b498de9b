//go:build vm

package tests

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// setClock moves the host's clock.
func setClock(t *testing.T, by time.Duration) {
	t.Helper()
	if os.Getenv("RKT_TEST_VM") != "1" {
		t.Fatal("this test sets the clock: only the virtual machine of TestVM is for that")
	}
	now := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
		t.Fatal(err)
	}
}

// TestClockIsSet sets the clock an hour back and forth while apps write, wait in
// their back-off and are told to stop, and while a pod that has ended is kept for
// its grace period: none of them is shortened, drawn out or put out of order. No
// other test may run beside it.
func TestClockIsSet(t *testing.T) {
	h := newHost(t)
	ended := h.start([]string{"--pod-name=ended"}, app{name: "x", script: "exit 7"})
	ended.wait()
	removed := h.start([]string{"--pod-name=removed"}, app{name: "x", script: "exit 8"})
	removed.wait()
	h.must("rm", "removed")
	writer := h.start([]string{"--pod-name=writer"}, app{name: "x", script: `trap 'echo end; exit 0' TERM; i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done`})
	var followed bytes.Buffer
	follower := h.command("logs", "-f", writer.uuid())
	follower.Stdout = &followed
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	lines := func() int { return strings.Count(h.must("logs", "writer"), "\n") }
	writesOn := func(was int) {
		t.Helper()
		until(t, "the app has written on", func() bool { return lines() > was+3 })
	}
	writesOn(0)

	crash := h.start([]string{"--pod-name=crash"}, app{name: "x", script: "exit 3", flags: []string{"--restart=on-failure:5"}})
	var begun []time.Time // by the monotonic clock
	for i, by := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		until(t, "the app waits in its back-off", func() bool { return len(crash.attempts("x")) > i+1 })
		begun = append(begun, time.Now())
		was := lines()
		setClock(t, by)
		writesOn(was)
		for _, grace := range []string{"30m", "1h"} {
			h.must("gc", "--grace-period="+grace)
		}
		if res := h.rkt("wait", "ended", "removed"); res.code != 7 || strings.Count(res.stdout, "\n") != 2 {
			t.Errorf("the clock set by %s: %s", by, res)
		}
	}
	if res := crash.wait(); res.code != 3 {
		t.Error(res)
	}
	// 200 ms to the third execution, then 400, 800, 1600.
	if took := time.Since(begun[0]); took < 3*time.Second || took > 20*time.Minute || len(crash.attempts("x")) != 6 {
		t.Errorf("%d executions; the back-offs took %s", len(crash.attempts("x")), took)
	}

	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		stubborn := h.start(nil, app{name: "x", script: `trap 'echo told' TERM; echo up; while :; do sleep 0.1; done`, flags: []string{"--stop-timeout=5s"}})
		stubborn.logged("x", "up")
		begin := time.Now()
		stopped := make(chan result)
		go func() { stopped <- h.rkt("stop", stubborn.uuid()) }()
		stubborn.logged("x", "told")
		setClock(t, by)
		res, took := <-stopped, time.Since(begin)
		if end := stubborn.wait(); res.code != 0 || end.code != 137 || took < 5*time.Second || took > 15*time.Minute {
			t.Errorf("the clock set by %s: stopped after %s: %s, %s", by, took, res, end)
		}
	}

	h.must("stop", "writer")
	writer.wait()
	if err := follower.Wait(); err != nil {
		t.Error(err)
	}
	var want strings.Builder
	text := h.must("logs", "writer")
	for n := range strings.Count(text, "\n") - 1 {
		fmt.Fprintln(&want, n+1)
	}
	want.WriteString("end\n")
	if text != want.String() || followed.String() != text {
		t.Errorf("the log\n%s, followed\n%s", text, followed.String())
	}
	if tail := h.must("logs", "--tail=1", "writer"); tail != "end\n" {
		t.Errorf("the last line: %q", tail)
	}
}
