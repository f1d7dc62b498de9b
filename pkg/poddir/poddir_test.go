package poddir

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/proc"
)

func TestParseUUID(t *testing.T) {
	if _, err := ParseUUID("0e2ee1c5-8ff1-4a1c-9a5c-1f7ee32a7a2e"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "0e2ee1c5", "0E2EE1C5-8ff1-4a1c-9a5c-1f7ee32a7a2e", "../../../../../../../../../../etc/passwd", "0e2ee1c5-8ff1-4a1c-9a5c_1f7ee32a7a2e"} {
		if _, err := ParseUUID(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestAttempts(t *testing.T) {
	app := Dir(t.TempDir()).App("web")
	for _, name := range []string{"10", "2", "0", "x", "-1"} {
		if err := os.MkdirAll(string(app)+"/"+name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got, err := app.Attempts()
	if err != nil || !slices.Equal(got, []int{0, 2, 10}) {
		t.Errorf("got %v, %v", got, err)
	}
	want := Status{App: "web", Attempt: 10, State: Running}
	if err := atomicfile.WriteJSON(app.Attempt(10).Status(), want, 0o600, atomicfile.Renamed); err != nil {
		t.Fatal(err)
	}
	if s, err := app.ReadStatus(); err != nil || s.Attempt != 10 || s.State != Running {
		t.Errorf("got %+v, %v", s, err)
	}
}

// TestAge: how long ago a pod ended is counted by the clock that nobody sets,
// wherever the other one was set to meanwhile; but not over a boot.
func TestAge(t *testing.T) {
	e := Exit{}.Now()
	for _, set := range []time.Duration{-time.Hour, 0, time.Hour} {
		if age := e.Age(time.Now().Add(set)); age < 0 || age > time.Minute {
			t.Errorf("the clock set by %s: %s", set, age)
		}
	}
	other, ahead, none := e, e, e
	other.Moment.BootID = "another"
	ahead.Moment.Ns += int64(time.Hour)
	none.Moment = proc.Moment{}
	for _, e := range []Exit{other, ahead, none} {
		if age := e.Age(e.FinishedAt.Add(time.Hour)); age != time.Hour {
			t.Errorf("%+v: %s", e, age)
		}
	}
	var back Exit
	path := t.TempDir() + "/exit.json"
	if err := errors.Join(atomicfile.WriteJSON(path, e, 0o600, atomicfile.Renamed), atomicfile.ReadJSON(path, &back)); err != nil || back != e {
		t.Errorf("read back %+v, %v", back, err)
	}
}
