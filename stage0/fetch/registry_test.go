package fetch

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/tests/images"
	"github.com/rkt-pods/rkt/tests/registry"
	"github.com/rkt-pods/rkt/tests/rktfetch"
)

// remoteTest is a registry on loopback with a store beside.
type remoteTest struct {
	*registry.Registry
	t    *testing.T
	st   *store.Store
	host string
}

func newRemote(t *testing.T) *remoteTest {
	t.Helper()
	r := &remoteTest{Registry: registry.New(t.TempDir()), t: t, st: newStore(t)}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

// publish makes an image in a repository, under the tag that is its name.
func (r *remoteTest) publish(repo string, list ...images.Image) images.Files {
	r.t.Helper()
	files := must(images.OCI(list...))
	if err := files.WriteDir(filepath.Join(r.Dir, repo)); err != nil {
		r.t.Fatal(err)
	}
	return files
}

func (r *remoteTest) fetcher(pull Pull) *Fetcher {
	f := &Fetcher{Store: r.st, Pull: pull, Options: Options{Policy: unsigned}, Network: plainNetwork(r.host)}
	f.Options.Decompressor = remote.NewDecompressor(rktfetch.Program(), fetchwire.Limits{})
	r.t.Cleanup(func() { _ = f.Close() })
	return f
}

// plainNetwork asks one registry without TLS.
func plainNetwork(host string) func(context.Context) (remote.Options, error) {
	return func(context.Context) (remote.Options, error) {
		return remote.Options{Program: rktfetch.Program(), Setup: fetchwire.Setup{Registries: []fetchwire.Registry{{Name: host, PlainHTTP: true}}}}, nil
	}
}

func (r *remoteTest) ref(text string) ref.Ref {
	return must(ref.Parse("docker://"+r.host+"/"+text, func(string) bool { return false }))
}

// fetch fetches and returns what was asked for.
func (r *remoteTest) fetch(pull Pull, text string) (image.Record, []string, int64, error) {
	r.Take()
	rec, err := r.fetcher(pull).Resolve(r.t.Context(), r.ref(text))
	requests, sent := r.Take()
	return rec, requests, sent, err
}

func oneFile(name, content string) []byte {
	return must(images.Tar([]images.Entry{images.Dir("d", 0o700), images.File("d/"+name, 0o644, content)}))
}

// noise does not pack.
func noise(seed, n int) string {
	b := make([]byte, n)
	x := uint64(seed)*2654435761 + 88172645463325252
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return string(b)
}

func blobsIn(requests []string) []string {
	var list []string
	for _, r := range requests {
		if strings.Contains(r, "/blobs/") {
			list = append(list, r)
		}
	}
	return list
}

func TestRegistryFetch(t *testing.T) {
	for _, pack := range []images.Compression{images.None, images.Gzip, images.Zstd} {
		t.Run(string(pack), func(t *testing.T) {
			r := newRemote(t)
			r.publish("lib/app", images.Image{Name: "1", Pack: pack, Layers: [][]byte{oneFile("a", "one"), oneFile("b", "two"), oneFile("c", "three")}})
			rec, _, _, err := r.fetch(PullNew, "lib/app:1")
			if err != nil {
				t.Fatal(err)
			}
			if len(rec.Layers) != 3 || rec.Name != r.host+"/lib/app" || !slices.Equal(rec.Names, []string{r.host + "/lib/app:1"}) {
				t.Errorf("record %+v", rec)
			}
			if data, err := os.ReadFile(filepath.Join(r.st.LayerFS(rec.Layers[2]), "d/c")); err != nil || string(data) != "three" {
				t.Errorf("content %q, %v", data, err)
			}
			// What the store has costs nothing, and that it is still so one request.
			if again, requests, _, err := r.fetch(PullNew, "lib/app:1"); err != nil || again.ID != rec.ID || len(requests) > 0 {
				t.Errorf("new: %v, %v, requests %q", again.ID, err, requests)
			}
			if again, requests, _, err := r.fetch(PullUpdate, "lib/app:1"); err != nil || again.ID != rec.ID || len(requests) != 1 {
				t.Errorf("update: %v, %v, requests %q", again.ID, err, requests)
			}
			digest := rec.Sources[0].Digest
			if again, requests, _, err := r.fetch(PullUpdate, "lib/app@"+digest); err != nil || again.ID != rec.ID || len(blobsIn(requests)) > 1 {
				t.Errorf("by digest: %v, %v, requests %q", again.ID, err, requests)
			}
			if _, requests, _, err := r.fetch(PullUpdate, "lib/app@"+digest); err != nil || len(requests) > 0 {
				t.Errorf("by digest again: %v, requests %q", err, requests)
			}
		})
	}
}

func TestOnlyMissingLayersAreAskedFor(t *testing.T) {
	r := newRemote(t)
	shared := [][]byte{oneFile("a", "one"), oneFile("b", "two")}
	r.publish("app", images.Image{Name: "1", Pack: images.Gzip, Layers: append(slices.Clone(shared), oneFile("c", "old"))})
	if _, _, _, err := r.fetch(PullNew, "app:1"); err != nil {
		t.Fatal(err)
	}
	r.publish("other", images.Image{Name: "1", Pack: images.Zstd, Layers: append(slices.Clone(shared), oneFile("c", "new"))})
	rec, requests, _, err := r.fetch(PullNew, "other:1")
	if err != nil {
		t.Fatal(err)
	}
	if blobs := blobsIn(requests); len(blobs) != 2 { // the config and one layer
		t.Errorf("asked for %q", blobs)
	}
	// The tag of the first one moves.
	r.publish("app", images.Image{Name: "1", Pack: images.Zstd, Layers: append(slices.Clone(shared), oneFile("c", "new"))})
	moved, requests, _, err := r.fetch(PullUpdate, "app:1")
	if err != nil || moved.ID != rec.ID || len(blobsIn(requests)) > 1 {
		t.Errorf("moved tag: %v, %v, asked for %q", moved.ID, err, requests)
	}
	if found, err := r.st.Named(r.host + "/app:1"); err != nil || found.ID != moved.ID {
		t.Errorf("the name means %s, %v", found.ID, err)
	}
	if old, _, _, err := r.fetch(PullNever, "gone:1"); !errs.Is(err, errs.NotFound) {
		t.Errorf("never: %v, %v", old.ID, err)
	}
}

// TestChangedBlob: a blob that is not what its digest says is refused, the layers
// that are stay, and the next fetch asks for the others alone.
func TestChangedBlob(t *testing.T) {
	r := newRemote(t)
	good, bad := oneFile("a", noise(1, 1000)), oneFile("b", noise(2, 5000))
	files := r.publish("app", images.Image{Name: "1", Layers: [][]byte{good, bad}})
	if files["blobs/sha256/"+images.Digest(bad)[len("sha256:"):]] == nil {
		t.Fatal("no such blob")
	}
	r.WrongOnce(images.Digest(bad))
	f := r.fetcher(PullNew)
	f.Options.Parallel = 1
	_, err := f.Resolve(t.Context(), r.ref("app:1"))
	if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "layer 2 of 2") {
		t.Fatalf("error %v, class %s", err, errs.ClassOf(err))
	}
	if list, err := r.st.Images(); err != nil || len(list) > 0 {
		t.Errorf("%d images, %v", len(list), err)
	}
	if g, err := r.st.Collect(t.Context(), none, store.InterruptedGrace); err != nil || len(g.Layers) > 0 {
		t.Errorf("collected %+v, %v", g, err)
	}
	_, requests, _, err := r.fetch(PullNew, "app:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range blobsIn(requests) {
		if strings.HasSuffix(q, images.Digest(good)) {
			t.Error("a verified layer was asked for again")
		}
	}
	checkOnlyImage(t, r.st)
}

// checkOnlyImage fails if there is more in the store than one image needs.
func checkOnlyImage(t *testing.T, st *store.Store) {
	t.Helper()
	list, err := st.Images()
	if err != nil || len(list) != 1 {
		t.Fatalf("%d images, %v", len(list), err)
	}
	if g, err := st.Collect(t.Context(), none, 0); err != nil || len(g.Layers)+len(g.Blobs) > 0 {
		t.Errorf("collected %+v, %v", g, err)
	}
	if left := must(os.ReadDir(filepath.Join(st.Data(), "store/tmp"))); len(left) > 0 {
		t.Errorf("left in store/tmp: %v", left)
	}
}

// TestCutConnections: a registry that ends each connection after a while costs
// little more than the bytes of the image.
func TestCutConnections(t *testing.T) {
	r := newRemote(t)
	r.publish("app", images.Image{Name: "1", Layers: [][]byte{oneFile("a", noise(3, 9<<20)), oneFile("b", noise(4, 5<<20))}, Pack: images.Gzip})
	r.CutEvery(1 << 20)
	_, _, sent, err := r.fetch(PullNew, "app:1")
	if err != nil {
		t.Fatal(err)
	}
	if most := int64(14 << 20 * 11 / 10); sent > most {
		t.Errorf("%d bytes were sent, more than %d", sent, most)
	}
	checkOnlyImage(t, r.st)
}

// TestInterrupted: what is verified when a fetch is cancelled stays, for as long
// as the collection's grace, and is not asked for again.
func TestInterrupted(t *testing.T) {
	r := newRemote(t)
	var layers [][]byte
	for i := range 5 {
		layers = append(layers, oneFile(fmt.Sprint(i), noise(i, 3000)))
	}
	r.publish("app", images.Image{Name: "1", Layers: layers})
	ctx, cancel := context.WithCancel(t.Context())
	f := r.fetcher(PullNew)
	f.Options.Parallel = 1
	done := 0
	f.Options.Progress = func(e Event) {
		if e.Stage == StageLayer && e.State == Done {
			if done++; done == 3 {
				r.Hold()
				cancel()
			}
		}
	}
	_, err := f.Resolve(ctx, r.ref("app:1"))
	r.Release()
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "interrupted") {
		t.Fatalf("error %v", err)
	}
	if g, err := r.st.Collect(t.Context(), none, store.InterruptedGrace); err != nil || len(g.Layers) > 0 {
		t.Errorf("collected within the grace: %+v, %v", g, err)
	}
	there := r.layers()
	if len(there) < 3 {
		t.Errorf("%d layers are kept", len(there))
	}
	_ = f.Close() // else a request of it may still be on its way
	_, requests, _, err := r.fetch(PullNew, "app:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range blobsIn(requests) {
		if there[filepath.Base(q)] { // they are not packed
			t.Errorf("a verified layer was asked for: %s", q)
		}
	}
	checkOnlyImage(t, r.st)
}

// layers are the diff ids of the layers that are in the store.
func (r *remoteTest) layers() map[string]bool { return layersIn(r.st.Data()) }

func layersIn(data string) map[string]bool {
	found, _ := filepath.Glob(filepath.Join(data, "store/layers/oci-sha256-*"))
	ids := map[string]bool{}
	for _, dir := range found {
		ids["sha256:"+strings.TrimPrefix(filepath.Base(dir), "oci-sha256-")] = true
	}
	return ids
}

// TestFetchesShare: of several that fetch the same at once, each layer is asked
// for by one.
func TestFetchesShare(t *testing.T) {
	r := newRemote(t)
	r.publish("app", images.Image{Name: "1", Layers: [][]byte{oneFile("a", noise(5, 400000)), oneFile("b", noise(6, 300000))}, Pack: images.Gzip})
	r.Take()
	var all sync.WaitGroup
	for range 4 {
		f := r.fetcher(PullNew)
		all.Go(func() {
			if _, err := f.Resolve(t.Context(), r.ref("app:1")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	requests, _ := r.Take()
	count := map[string]int{}
	for _, q := range blobsIn(requests) {
		count[q]++
	}
	layers := 0
	for _, n := range count {
		if n == 1 {
			layers++
		}
	}
	if layers < 2 { // all of them want the config, which is no layer
		t.Errorf("blobs were asked for %v", count)
	}
	checkOnlyImage(t, r.st)
}

func TestPlatforms(t *testing.T) {
	r := newRemote(t)
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	files := must(images.OCIIndex("1",
		images.Image{Name: "x", Layers: [][]byte{oneFile("a", "other")}, Arch: other},
		images.Image{Name: "y", Layers: [][]byte{oneFile("a", "mine")}},
	))
	if err := files.WriteDir(filepath.Join(r.Dir, "app")); err != nil {
		t.Fatal(err)
	}
	mine, _, _, err := r.fetch(PullNew, "app:1")
	if err != nil {
		t.Fatal(err)
	}
	if mine.Index == "" {
		t.Error("the index is not kept")
	}
	if _, requests, _, err := r.fetch(PullUpdate, "app:1"); err != nil || len(requests) != 1 {
		t.Errorf("update: %v, requests %q", err, requests)
	}
	f := r.fetcher(PullUpdate)
	f.Options.Platform = must(ParsePlatform("linux/" + other))
	theirs, err := f.Resolve(t.Context(), r.ref("app:1"))
	if err != nil || theirs.ID == mine.ID {
		t.Fatalf("the other platform: %v, %v", theirs.ID, err)
	}
	f.Options.Platform = must(ParsePlatform("linux/s390x"))
	if _, err := f.Resolve(t.Context(), r.ref("app:1")); !errs.Is(err, errs.Unsupported) {
		t.Errorf("a platform that is not there: %v", err)
	}
}

// TestOddManifests: what a registry has under a name may be anything.
func TestOddManifests(t *testing.T) {
	r := newRemote(t)
	n := 0
	for want, edit := range map[string]func(m map[string]any){
		`config: media type "application/vnd.example+json" is none of an image's`: func(m map[string]any) {
			m["config"].(map[string]any)["mediaType"] = "application/vnd.example+json"
		},
		`media type "application/vnd.example+json"`: func(m map[string]any) {
			m["layers"].([]any)[0].(map[string]any)["mediaType"] = "application/vnd.example+json"
		},
		`layer 1: digest "md5:00": unknown algorithm`: func(m map[string]any) {
			m["layers"].([]any)[0].(map[string]any)["digest"] = "md5:00"
		},
		`config: digest "": no algorithm`:        func(m map[string]any) { m["config"] = nil },
		"layers.size: a wrong value: number 1.5": func(m map[string]any) { m["layers"].([]any)[0].(map[string]any)["size"] = 1.5 },
		"config: a wrong value: array":           func(m map[string]any) { m["config"] = []string{} },
	} {
		n++
		repo := fmt.Sprintf("app%d", n)
		r.publish(repo, images.Image{Name: "1", Layers: [][]byte{oneFile("f", "x")}, EditManifest: edit})
		_, _, _, err := r.fetch(PullNew, repo+":1")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "manifest sha256:") && !strings.Contains(err.Error(), "layer sha256:") || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v", want, err)
		}
		if c := errs.ClassOf(err); c != errs.Corrupt && c != errs.Unsupported {
			t.Errorf("%s: class %s", want, c)
		}
		checkClean(t, r.st)
	}
	for _, kind := range []string{"application/vnd.docker.container.image.v1+json", "application/octet-stream"} {
		r.publish("good", images.Image{Name: "1", Layers: [][]byte{oneFile("f", kind)}, EditManifest: func(m map[string]any) {
			m["config"].(map[string]any)["mediaType"] = kind
		}})
		if _, _, _, err := r.fetch(PullUpdate, "good:1"); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
