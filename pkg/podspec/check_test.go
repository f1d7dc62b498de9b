package podspec

import (
	"reflect"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
)

func TestParseChecks(t *testing.T) {
	for text, want := range map[string]Probe{
		"notify":                          {Check: Check{Kind: CheckNotify}},
		"tcp:5432":                        {Check{Kind: CheckTCP, Port: 5432}, 0, time.Second, time.Second, 1, 3},
		"http:80":                         {Check{Kind: CheckHTTP, Port: 80, Path: "/"}, 0, time.Second, time.Second, 1, 3},
		"http:80/a,b?c=d,period=5s":       {Check{Kind: CheckHTTP, Port: 80, Path: "/a,b?c=d"}, 0, 5 * time.Second, time.Second, 1, 3},
		"exec:/bin/x -a,delay=2s":         {Check{Kind: CheckExec, Argv: []string{"/bin/x", "-a"}}, 2 * time.Second, time.Second, time.Second, 1, 3},
		`exec:sh -c 'a,period=9s' "" \ x`: {Check{Kind: CheckExec, Argv: []string{"sh", "-c", "a,period=9s", "", " x"}}, 0, time.Second, time.Second, 1, 3},
		"tcp:1,failures=5,successes=2,timeout=100ms": {Check{Kind: CheckTCP, Port: 1}, 0, time.Second, 100 * time.Millisecond, 2, 5},
	} {
		got, err := ParseReady(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if again, err := ParseReady(got.String()); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%q, read back as %q: %+v, %v", text, got.String(), again, err)
		}
	}
	h, err := ParseHook("exec:/bin/sync now,timeout=3s")
	if err != nil || h.Timeout != 3*time.Second || h.String() != "exec:/bin/sync now,timeout=3s" {
		t.Errorf("hook %+v, %v", h, err)
	}
}

func TestParseChecksRefuses(t *testing.T) {
	for _, bad := range []string{
		"", "exec:", "exec: ", "tcp:0", "tcp:65536", "tcp:x", "http:/x", "https:1", "tcp:1,period=999ms", "tcp:1,timeout=0s",
		"tcp:1,period=1s,period=2s", "tcp:1,failures=0", "exec:'a", `exec:a\`, "http:80/a b", "notify,period=1s", "tcp:1,nothing=1",
	} {
		if p, err := ParseReady(bad); !errs.Is(err, errs.Usage) {
			t.Errorf("%q: %+v, %v", bad, p, err)
		}
	}
	if _, err := ParseLive("notify"); err == nil {
		t.Error("a liveness probe cannot be the app's word")
	}
	if _, err := ParseLive("tcp:1,successes=2"); err == nil {
		t.Error("a liveness probe took two successes")
	}
	if _, err := ParseHook("tcp:1"); err == nil {
		t.Error("a hook took a port alone")
	}
}

// FuzzParseReady: what is read can be written and read again.
func FuzzParseReady(f *testing.F) {
	f.Add("exec:sh -c 'a b',period=2s")
	f.Add("http:80/x,timeout=1s")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseReady(s)
		if err != nil {
			return
		}
		again, err := ParseReady(p.String())
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%q is %q, which is %+v, %v", s, p.String(), again, err)
		}
	})
}
