package poddir

import (
	"os"
	"slices"
	"testing"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
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
