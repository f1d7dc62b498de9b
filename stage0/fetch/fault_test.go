//go:build fault

package fetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/export"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/verify"
	"github.com/rkt-pods/rkt/tests/images"
	"github.com/rkt-pods/rkt/tests/rktfetch"
)

func init() { children = append(children, importingChild) }

// importingChild is an import, a removal and a collection.
func importingChild() bool {
	path := os.Getenv("RKT_TEST_IMPORT")
	if path == "" {
		return false
	}
	if err := importAndRemove(context.Background(), os.Getenv("RKT_TEST_DATA"), path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func importAndRemove(ctx context.Context, data, path string) error {
	st, err := store.Open(data)
	if err != nil {
		return err
	}
	rec, err := importWith(ctx, st, path, Options{Policy: unsigned, KeepBlobs: true})
	if err != nil {
		return err
	}
	if err := use(ctx, st, rec, filepath.Join(data, "..", "out")); err != nil {
		return err
	}
	plan, err := st.PlanImages(time.Now(), store.Retention{}, none)
	if err != nil {
		return err
	}
	_, err = st.Retain(ctx, plan, none, 0)
	return err
}

// use does all that can be done with an image but run it.
func use(ctx context.Context, st *store.Store, rec image.Record, out string) error {
	if err := st.Touch(rec.ID); err != nil {
		return err
	}
	if err := st.PinImage(ctx, rec.ID); err != nil {
		return err
	}
	found, err := verify.New(st).Image(ctx, rec.ID)
	if err != nil || len(found) > 0 {
		return fmt.Errorf("verify: %v, %w", found, err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := export.File(ctx, st, []image.Record{rec}, "", filepath.Join(out, "file"), true); err != nil {
		return err
	}
	if err := export.Folder(ctx, st, rec, filepath.Join(out, "folder"), export.FolderOptions{Overwrite: true}); err != nil {
		return err
	}
	if rec.Kind == image.OCI {
		if err := export.Layout(ctx, st, []image.Record{rec}, filepath.Join(out, "layout"), true); err != nil {
			return err
		}
	}
	return st.UnpinImage(rec.ID)
}

func child(t *testing.T, data, path string, env ...string) ([]byte, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "RKT_TEST_IMPORT="+path, "RKT_TEST_DATA="+data)...)
	return cmd.CombinedOutput()
}

// TestEveryStepMayFail kills an import, a removal and a collection at each of
// their steps, or has the step fail: the next ones work without any repair and
// leave nothing.
func TestEveryStepMayFail(t *testing.T) {
	needRoot(t)
	layers := [][]byte{
		must(images.Tar([]images.Entry{images.Dir("d", 0o700), images.File("d/f", 0o644, "x"), images.Symlink("s", "d"), images.Link("h", "d/f")})),
		must(images.Tar([]images.Entry{images.File("d/g", 0o644, "y"), images.File("d/g", 0o644, "z"), images.Whiteout("s"), images.Link("d/h", "h")})),
	}
	img := images.Image{Name: "example.com/x:1", Layers: layers, Pack: images.Gzip}
	file := writeFile(t, "x.tar.gz", must(images.Compress(images.Gzip, must(must(images.OCI(img)).Tar()))))
	rktfetch.Program() // for the children too
	trace := filepath.Join(t.TempDir(), "trace")
	if out, err := child(t, filepath.Join(t.TempDir(), "data"), file, "RKT_FAULT_TRACE="+trace); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	steps := strings.Fields(string(must(os.ReadFile(trace))))
	count := map[string]int{}
	var points []string
	for _, s := range steps {
		count[s]++
		if count[s] <= 2 {
			points = append(points, fmt.Sprintf("%s@%d", s, count[s]))
		}
	}
	if len(count) < 15 || !slices.Contains(steps, "store.layer.rename") {
		t.Fatalf("steps %q", steps)
	}
	for _, point := range points {
		for _, action := range []string{"KILL", "ENOSPC", "EIO"} {
			data := filepath.Join(t.TempDir(), "data")
			out, err := child(t, data, file, "RKT_FAULT="+point+":"+action)
			// What can't be tidied up after an import is gc's to take.
			tidying := strings.HasPrefix(point, "store.stage.remove@") && action != "KILL"
			if err == nil && !tidying {
				t.Errorf("%s:%s: no error", point, action)
			}
			if ee, ok := errors.AsType[*exec.ExitError](err); action == "KILL" && ok && ee.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Errorf("%s:%s: %v\n%s", point, action, err, out)
			}
			if out, err := child(t, data, file); err != nil {
				t.Errorf("%s:%s: the next import: %v\n%s", point, action, err, out)
				continue
			}
			st := must(store.OpenExisting(data))
			checkClean(t, st)
		}
	}
}

func init() { children = append(children, fetchingChild) }

// fetchingChild fetches an image of a registry.
func fetchingChild() bool {
	text := os.Getenv("RKT_TEST_REF")
	if text == "" {
		return false
	}
	if err := fetchRef(context.Background(), os.Getenv("RKT_TEST_DATA"), text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func fetchRef(ctx context.Context, data, text string) error {
	st, err := store.Open(data)
	if err != nil {
		return err
	}
	r, err := ref.Parse(text, func(string) bool { return false })
	if err != nil {
		return err
	}
	f := &Fetcher{Store: st, Pull: PullUpdate, Options: Options{Policy: unsigned}, Network: plainNetwork(r.Host)}
	defer f.Close()
	_, err = f.Resolve(ctx, r)
	return err
}

// TestEveryStepOfAFetchMayFail kills the fetch of an image of five layers at each
// of its steps: the next one works, asks for no layer that is there, and nothing
// is left.
func TestEveryStepOfAFetchMayFail(t *testing.T) {
	r := newRemote(t)
	var layers [][]byte
	for i := range 5 {
		layers = append(layers, oneFile(fmt.Sprint(i), noise(i, 2000)))
	}
	r.publish("app", images.Image{Name: "1", Layers: layers})
	rktfetch.Program() // for the children too
	fetching := func(data string, env ...string) ([]byte, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), append(env, "RKT_TEST_REF=docker://"+r.host+"/app:1", "RKT_TEST_DATA="+data)...)
		return cmd.CombinedOutput()
	}
	trace := filepath.Join(t.TempDir(), "trace")
	if out, err := fetching(filepath.Join(t.TempDir(), "data"), "RKT_FAULT_TRACE="+trace); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	count := map[string]int{}
	reused := 0
	for _, step := range strings.Fields(string(must(os.ReadFile(trace)))) {
		if count[step]++; count[step] > 5 || strings.HasPrefix(step, "tree.") && count[step] > 2 {
			continue
		}
		point := fmt.Sprintf("%s@%d", step, count[step])
		data := filepath.Join(t.TempDir(), "data")
		out, err := fetching(data, "RKT_FAULT="+point+":KILL")
		if ee, ok := errors.AsType[*exec.ExitError](err); ok && ee.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("%s: %v\n%s", point, err, out)
		}
		there := layersIn(data)
		reused += len(there)
		r.Take()
		if out, err := fetching(data); err != nil {
			t.Errorf("%s: the next fetch: %v\n%s", point, err, out)
			continue
		}
		requests, _ := r.Take()
		for _, q := range blobsIn(requests) {
			if there[filepath.Base(q)] { // they are not packed
				t.Errorf("%s: the store had %s, and it was asked for", point, filepath.Base(q))
			}
		}
		checkOnlyImage(t, must(store.OpenExisting(data)))
	}
	if reused == 0 || count["store.layer.sync"] == 0 {
		t.Errorf("%d layers were reused; steps %v", reused, count)
	}
}
