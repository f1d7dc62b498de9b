package tests

import (
	"strings"
	"sync"
	"testing"
)

// TestCommandsAtOnce lets a hundred commands loose on one pod: each does what it
// says, and none waits in vain. Then others stop it in the middle of them: who
// comes too late hears so.
func TestCommandsAtOnce(t *testing.T) {
	t.Parallel()
	commands := 100
	if testing.Short() {
		commands = 30
	}
	h := newHost(t)
	p := h.start([]string{"--pod-name=busy", "--exit-policy=all"},
		app{name: "a", script: `trap : USR1; ` + serve}, app{name: "b", script: serve, flags: []string{"--restart=always"}})
	p.logged("a", "up")
	p.logged("b", "up")
	atOnce := func(kinds ...string) []result {
		results := make([]result, commands)
		var wg sync.WaitGroup
		for i := range results {
			line := strings.ReplaceAll(kinds[i%len(kinds)], "N", itoa(100+i))
			wg.Go(func() { results[i] = h.rkt(strings.Fields(line)...) })
		}
		wg.Wait()
		return results
	}
	for _, res := range atOnce(
		"kill --signal=USR1 --app=a busy", "status busy", "update --app=a --memory=NMi busy", "pause busy", "unpause busy",
		"app restart --app=b busy", "update --pids=N busy", "logs busy", "list --format=json", "events busy",
	) {
		// Not while b is being restarted.
		if res.code != 0 && (res.args[0] != "pause" || !strings.Contains(res.stderr, "app b: is being stopped or restarted")) {
			t.Errorf("%s", res)
		}
	}
	h.must("unpause", "busy")
	until(t, "the pod runs on", func() bool { return strings.Contains(h.must("status", "busy"), "app-b-state=running\n") })
	if text := h.must("status", "busy"); strings.Count(text, "isolator=enforced: memory ") != 1 || strings.Count(text, "isolator=enforced: pids ") != 1 {
		t.Errorf("%s", text)
	}
	for _, res := range atOnce("update --app=a --memory=NMi busy", "stop busy", "kill --signal=USR1 --app=a busy", "wait busy", "status busy", "app restart --app=b busy") {
		late := false
		for _, why := range []string{"has just ended", "does not listen", "not running", "being stopped", "no app runs", "can't be reached now", "is just starting"} {
			late = late || strings.Contains(res.stderr, why)
		}
		if res.code != 0 && (res.code != 254 || !late) || res.code != 0 && (res.args[0] == "stop" || res.args[0] == "wait" || res.args[0] == "status") {
			t.Errorf("%s", res)
		}
	}
	if res := p.wait(); res.code != 0 {
		t.Errorf("%s", res)
	}
	for _, a := range h.status(p.uuid()).Apps {
		if a.Status.State != "exited" || a.Status.Reason != "Stopped" {
			t.Errorf("%s: %+v", a.Name, a.Status)
		}
	}
}
