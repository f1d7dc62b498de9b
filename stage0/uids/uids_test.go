package uids

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// fixture is a host with two data folders.
type fixture struct {
	*testing.T
	Leases
	data string
}

func newFixture(t *testing.T, subuid, subgid string) *fixture {
	t.Helper()
	dir := t.TempDir()
	f := &fixture{t, Leases{dir: filepath.Join(dir, "ids"), ids: subIDs{filepath.Join(dir, "subuid"), filepath.Join(dir, "subgid")}}, filepath.Join(dir, "data")}
	for path, text := range map[string]string{f.ids.user: subuid, f.ids.group: subgid} {
		if text != "" {
			f.must(os.WriteFile(path, []byte(text), 0o644))
		}
	}
	f.must(os.MkdirAll(poddir.PodsDir(f.data), 0o755))
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// pod makes the n-th pod's folder.
func (f *fixture) pod(n int) Holder {
	f.Helper()
	h := Holder{f.data, fmt.Sprintf("00000000-0000-0000-0000-%012d", n)}
	f.must(os.MkdirAll(poddir.Path(f.data, poddir.Prepare, h.UUID), 0o755))
	return h
}

func TestTake(t *testing.T) {
	for name, c := range map[string]struct {
		subuid, subgid string
		want           []string // what pods get one after the other, and then the error
	}{
		"nothing listed": {"", "", []string{"1879048192:65536", "1879113728:65536"}},
		"others listed":  {"jane:1879048192:100\nbad\nx:y:z\n", "john:1879113700:65600\n", []string{"1879179300:65536"}},
		"own": {"jane:1:5\nrkt:1000000:131072\n", "rkt:1000000:131072\n#rkt:5:5\n",
			[]string{"1000000:65536", "1065536:65536", "none left: 2 pods have theirs"}},
		"two lines": {"rkt:1000000:70000\nrkt:3000000:65536\n", "rkt:900000:9000000\n", []string{"1000000:65536", "3000000:65536", "none left"}},
		"differ":    {"rkt:1000000:65536\n", "rkt:2000000:65536\n", []string{"no ids of rkt that are in both"}},
		"one only":  {"rkt:1000000:65536\n", "", []string{"no ids of rkt that are in both"}},
		"too few":   {"rkt:1000000:65535\n", "rkt:1000000:65535\n", []string{"none left: 0 pods"}},
		"beyond":    {"rkt:4294901760:99999999\n", "rkt:4294901000:99999999\n", []string{"none left"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.subuid, c.subgid)
			for n, want := range c.want {
				r, err := f.Take(t.Context(), f.pod(n), nil)
				var got string
				if err != nil {
					got = err.Error()
				} else {
					got = r.String()
				}
				if !strings.Contains(got, want) {
					t.Errorf("pod %d gets %s, not %s", n, got, want)
				}
			}
		})
	}
}

func TestTakeWanted(t *testing.T) {
	f := newFixture(t, "", "")
	_, err := f.Take(t.Context(), f.pod(1), &idrange.Range{Start: 5000, Count: 10})
	f.must(err)
	for _, r := range []idrange.Range{{Start: 5009, Count: 1}, {Start: 1, Count: 5000}, {Start: 4000, Count: 90000}} {
		if _, err := f.Take(t.Context(), f.pod(2), &r); !errs.Is(err, errs.Busy) || !strings.Contains(err.Error(), "pod "+f.pod(1).UUID+" has 5000:10") {
			t.Errorf("%s: %v", &r, err)
		}
	}
	_, err = f.Take(t.Context(), f.pod(2), &idrange.Range{Start: 5010, Count: 10})
	f.must(err)
	// A pod that is gone keeps nobody from anything.
	f.must(os.RemoveAll(poddir.Path(f.data, poddir.Prepare, f.pod(1).UUID)))
	_, err = f.Take(t.Context(), f.pod(3), &idrange.Range{Start: 5000, Count: 10})
	f.must(err)
}

// TestTakeAtOnce: however many take and free ids at once, no two have the same,
// and in the end nothing is left.
func TestTakeAtOnce(t *testing.T) {
	f := newFixture(t, "rkt:1000000:2621440\n", "rkt:1000000:2621440\n") // of 40 pods
	var mu sync.Mutex
	taken := map[uint32]string{}
	var wg sync.WaitGroup
	for n := range 40 {
		h := f.pod(n)
		wg.Go(func() {
			for range 3 {
				r, err := f.Take(context.Background(), h, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if other := taken[r.Start]; other != "" {
					t.Errorf("%s and %s have %s", h.UUID, other, r)
				}
				taken[r.Start] = h.UUID
				mu.Unlock()
				mu.Lock()
				delete(taken, r.Start)
				mu.Unlock()
				if err := f.Free(context.Background(), h); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := os.Stat(f.dir); err == nil {
		f.must(f.Sweep(t.Context()))
	}
	if list, err := os.ReadDir(f.dir); err == nil {
		t.Errorf("left: %v", list)
	}
}

func TestSweep(t *testing.T) {
	f := newFixture(t, "", "")
	f.must(f.Sweep(t.Context())) // of nothing
	kept, err := f.Take(t.Context(), f.pod(1), nil)
	f.must(err)
	_, err = f.Take(t.Context(), f.pod(2), nil)
	f.must(err)
	away, err := f.Take(t.Context(), Holder{"/nosuch/data", f.pod(3).UUID}, nil)
	f.must(err)
	f.must(os.RemoveAll(poddir.Path(f.data, poddir.Prepare, f.pod(2).UUID)))
	f.must(os.WriteFile(filepath.Join(f.dir, ".tmp-1-2"), nil, 0o600))
	f.must(f.Sweep(t.Context()))
	list, err := f.list()
	f.must(err)
	if len(list) != 2 || list[0].Range != *kept || list[1].Range != *away {
		t.Errorf("left: %v", list)
	}
	if _, err := os.Stat(filepath.Join(f.dir, ".tmp-1-2")); err == nil {
		t.Error("half a file is left")
	}
	held, err := f.Held(f.data)
	f.must(err)
	if len(held) != 1 || *held[f.pod(1).UUID] != *kept {
		t.Errorf("held: %v", held)
	}
	f.must(f.Free(t.Context(), Holder{"/nosuch/data", f.pod(3).UUID}))
	f.must(f.Free(t.Context(), f.pod(1)))
	if _, err := os.Stat(f.dir); err == nil {
		t.Error("the empty folder is left")
	}
}

func TestDamagedLease(t *testing.T) {
	f := newFixture(t, "", "")
	f.must(os.MkdirAll(f.dir, 0o700))
	f.must(os.WriteFile(filepath.Join(f.dir, "1879048192"), []byte("{"), 0o600))
	if _, err := f.Take(t.Context(), f.pod(1), nil); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "1879048192") {
		t.Errorf("%v", err)
	}
}
