//go:build fault

package trust

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
	"github.com/rkt-pods/rkt/tests/signer"
)

func init() { children = append(children, trustingChild) }

// trustingChild trusts a key, and then no more.
func trustingChild() bool {
	dir, ok := os.LookupEnv("RKT_TEST_TRUST")
	if !ok {
		return false
	}
	data, err := os.ReadFile(filepath.Join(dir, "key"))
	if err == nil {
		key := sigwire.Key{Kind: sigwire.KindOpenPGP, Fingerprint: os.Getenv("RKT_TEST_KEY"), Data: data}
		if _, err = Add(dir, "example.com/team", key); err == nil {
			var p Policy
			if p, err = Load(Options{System: filepath.Join(dir, "vendor"), Local: dir}); err == nil {
				_, err = p.Remove(key.Fingerprint, nil)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// TestFault stops adding and removing at each step: a key is trusted whole or not
// at all, and it can be done again.
func TestFault(t *testing.T) {
	for _, vendor := range []bool{false, true} {
		k, key := newKeys(t), must(signer.NewPGP("alice", packet.Config{}))
		system := keys{t, filepath.Join(k.dir, "vendor")}
		if vendor {
			system.pgp("example.com/team", key)
		}
		if err := os.WriteFile(filepath.Join(k.dir, "key"), must(key.Public()), 0o644); err != nil {
			t.Fatal(err)
		}
		trace := filepath.Join(t.TempDir(), "trace")
		run := func(env ...string) (string, error) {
			cmd := exec.Command(must(os.Executable()))
			cmd.Env = append(os.Environ(), append(env, "RKT_TEST_TRUST="+k.dir, "RKT_TEST_KEY="+key.Fingerprint())...)
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		if out, err := run("RKT_FAULT_TRACE=" + trace); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		steps := strings.Fields(string(must(os.ReadFile(trace))))
		if len(steps) < 4 {
			t.Fatalf("steps %q", steps)
		}
		for i, step := range steps {
			nth := len(slices.DeleteFunc(slices.Clone(steps[:i+1]), func(s string) bool { return s != step }))
			for _, action := range []string{"KILL", "ENOSPC"} {
				at := fmt.Sprintf("RKT_FAULT=%s@%d:%s", step, nth, action)
				out, err := run(at)
				if err == nil || action == "ENOSPC" && !strings.Contains(out, "no space left") {
					t.Errorf("%s: %v: %s", at, err, out)
				}
				p := must(Load(Options{System: system.dir, Local: k.dir, Program: must(os.Executable())}))
				for _, found := range p.Keys() {
					if _, err := p.Describe(t.Context(), found.data); err != nil || found.Fingerprint != key.Fingerprint() {
						t.Errorf("%s: %s: %v", at, found.Path, err)
					}
				}
				if out, err := run(); err != nil {
					t.Errorf("after %s: %v: %s", at, err, out)
				}
				if left := must(Load(Options{System: system.dir, Local: k.dir})).Keys(); len(left) > 0 {
					t.Errorf("after %s: %+v", at, left)
				}
			}
		}
	}
}
