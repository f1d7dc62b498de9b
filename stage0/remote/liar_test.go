package remote

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// TestProgramThatLies: whatever rkt-fetch does, rkt gets an error and ends it.
func TestProgramThatLies(t *testing.T) {
	liar := buildProgram(t, "./testdata/liar")
	slow := func(ctx context.Context, _ fetchwire.CredentialRequest) (fetchwire.Credential, error) {
		<-ctx.Done()
		return fetchwire.Credential{}, ctx.Err()
	}
	for what, want := range map[string]struct {
		class errs.Class
		text  string
	}{
		"two-heads":  {errs.Corrupt, "two heads for one request"},
		"no-head":    {errs.Corrupt, "an answer without a head"},
		"other-side": {errs.Corrupt, "a message that only rkt sends"},
		"descriptor": {errs.Corrupt, "it brings descriptors"},
		"endless":    {errs.Corrupt, "an answer of more than 4194304 bytes"},
		"short":      {errs.Unavailable, "rkt-fetch ended too early"},
		"asks":       {errs.Corrupt, "too many questions at once"},
		"hangs-up":   {errs.Unavailable, "rkt-fetch ended: signal: killed"},
		"words":      {errs.Unavailable, "rkt-fetch ended: last  [31mwords"},
		"terminal":   {errs.Denied, " ]0;title "},
		"honest":     {},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c, err := Start(t.Context(), Options{Program: liar, Credentials: slow})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			r := fetchwire.ManifestRequest{Repository: fetchwire.Repository{Registry: "reg.example", Name: "app"}, Reference: what}
			_, data, err := c.Manifest(t.Context(), r)
			if want.text == "" {
				if err != nil || string(data) != "honest" {
					t.Errorf("%q, %v", data, err)
				}
				return
			}
			refused(t, what, err, want.class, want.text)
			if err != nil && strings.ContainsAny(err.Error(), "\x1b\a") {
				t.Errorf("%q", err)
			}
		})
	}
}

// buildProgram builds a program of the tests as rkt-fetch is built.
func buildProgram(t *testing.T, folder string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(folder))
	cmd := exec.Command("go", "build", "-o", path, folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	return path
}
