package fetch

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/tests/images"
)

func oneLayer() []byte { return must(images.Tar([]images.Entry{images.File("f", 0o644, "x")})) }

func TestErrorsAreOneClearLine(t *testing.T) {
	st := newStore(t)
	aci := must(images.ACI(images.Manifest("example.com/x", "1", nil), rootfs()))
	packed := must(images.Compress(images.Gzip, aci))
	otherArch := strings.Replace(images.Manifest("example.com/x", "1", nil), `"arch","value":"`, `"arch","value":"s390x`, 1)
	img := images.Image{Name: "example.com/x:1", Layers: [][]byte{oneLayer()}}
	foreign := img
	foreign.Arch = "s390x"
	twoNames := img
	twoNames.Name, twoNames.Layers = "example.com/y:1", [][]byte{must(images.Tar(nil))}
	empty := t.TempDir()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	badDigest := must(images.OCI(img))
	for name := range badDigest {
		if strings.HasPrefix(name, "blobs/") && bytes.Equal(badDigest[name], oneLayer()) {
			badDigest[name] = bytes.Replace(oneLayer(), []byte("x"), []byte("y"), 1)
		}
	}
	wrongDiff := img
	wrongDiff.EditConfig = func(c map[string]any) {
		c["rootfs"] = map[string]any{"type": "layers", "diff_ids": []string{images.Digest([]byte("other"))}}
	}
	noDiff := img
	noDiff.EditConfig = func(c map[string]any) { c["rootfs"] = map[string]any{"type": "layers", "diff_ids": []string{}} }
	for _, x := range []struct {
		name, path string
		class      errs.Class
		text       string
	}{
		{"missing", filepath.Join(empty, "nothing"), errs.NotFound, "no such file"},
		{"empty file", writeFile(t, "x", nil), errs.Corrupt, "empty file"},
		{"folder", empty, errs.Unsupported, "a folder without an OCI image layout"},
		{"fifo", fifo, errs.Usage, "not a regular file"},
		{"text", writeFile(t, "x", []byte("hello")), errs.Unsupported, "unknown format"},
		{"zeros", writeFile(t, "x", make([]byte, 4096)), errs.Unsupported, "unknown format"},
		{"a tar of something", writeFile(t, "x", oneLayer()), errs.Unsupported, "unknown format"},
		{"wrong arch", writeFile(t, "x", must(images.ACI(otherArch, nil))), errs.Unsupported, "image is for linux/s390x"},
		{"wrong arch, layout", writeFile(t, "x", must(must(images.OCI(foreign)).Tar())), errs.Unsupported, "image is for linux/s390x"},
		{"wrong arch, index", writeFile(t, "x", must(must(images.OCIIndex("x:1", foreign)).Tar())), errs.Unsupported, "no image for linux/"},
		{"truncated gzip", writeFile(t, "x", packed[:len(packed)-20]), errs.Corrupt, "truncated gzip stream"},
		{"truncated plain", writeFile(t, "x", aci[:len(aci)-2000]), errs.Corrupt, "truncated archive"},
		{"garbage behind gzip", writeFile(t, "x", append(bytes.Clone(packed), "garbage"...)), errs.Corrupt, "garbage after the end of the gzip stream"},
		{"garbage behind xz", writeFile(t, "x", append(must(images.Compress(images.XZ, aci)), "garbage"...)), errs.Corrupt, "xz stream"},
		{"garbage behind bzip2", writeFile(t, "x", append(must(images.Compress(images.Bzip2, aci)), "garbage"...)), errs.Corrupt, "garbage after the end of the bzip2 stream"},
		{"garbage behind", writeFile(t, "x", append(bytes.Clone(aci), "garbage"...)), errs.Corrupt, "garbage after the end"},
		{"damaged gzip", writeFile(t, "x", append(bytes.Clone(packed[:len(packed)-8]), "12345678"...)), errs.Corrupt, "damaged gzip stream"},
		{"manifest is no JSON", writeFile(t, "x", must(images.ACI("{", nil))), errs.Corrupt, "not valid JSON"},
		{"manifest of a pod", writeFile(t, "x", must(images.ACI(`{"acKind":"PodManifest"}`, nil))), errs.Corrupt, "acKind"},
		{"several images", writeFile(t, "x", must(must(images.OCI(img, twoNames)).Tar())), errs.Usage, "2 images in the layout"},
		{"several saved", writeFile(t, "x", must(images.Docker(img, twoNames).Tar())), errs.Usage, "2 images in the archive"},
		{"blob of another digest", writeFile(t, "x", must(badDigest.Tar())), errs.Corrupt, "the content is sha256:"},
		{"layer of another diff id", writeFile(t, "x", must(must(images.OCI(wrongDiff)).Tar())), errs.Corrupt, "the content is sha256:"},
		{"layer of another diff id, saved", writeFile(t, "x", must(images.Docker(wrongDiff).Tar())), errs.Corrupt, "the content is sha256:"},
		{"number of diff ids", writeFile(t, "x", must(must(images.OCI(noDiff)).Tar())), errs.Corrupt, "1 layers, but the config has 0"},
	} {
		t.Run(x.name, func(t *testing.T) {
			_, err := importWith(t.Context(), st, x.path, Options{Policy: unsigned})
			if err == nil || !errs.Is(err, x.class) || !strings.Contains(err.Error(), x.text) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v (%s), want %q (%s)", err, errs.ClassOf(err), x.text, x.class)
			}
			checkClean(t, st)
		})
	}
}

func TestReferenceInAFile(t *testing.T) {
	st := newStore(t)
	one := images.Image{Name: "example.com/x:1", Layers: [][]byte{oneLayer()}}
	two := images.Image{Name: "example.com/y:2", Layers: [][]byte{must(images.Tar(nil))}}
	for _, path := range []string{
		writeFile(t, "x.tar", must(must(images.OCI(one, two)).Tar())), writeFile(t, "x.tar", must(images.Docker(one, two).Tar())),
	} {
		rec := importFile(t, st, path+":example.com/y:2")
		if rec.Name != "example.com/y" {
			t.Errorf("record %+v", rec)
		}
		_, err := importWith(t.Context(), st, path+":example.com/z", Options{Policy: unsigned})
		if !errs.Is(err, errs.NotFound) || len(errs.Hints(err)) == 0 {
			t.Errorf("unknown reference: %v", err)
		}
	}
}

// TestOddConfigs has what real images have.
func TestOddConfigs(t *testing.T) {
	st := newStore(t)
	for name, x := range map[string]struct {
		config any
		want   string
	}{
		"none":             {nil, `[]`},
		"null":             {json.RawMessage("null"), `[]`},
		"empty entrypoint": {map[string]any{"Entrypoint": []string{""}, "Cmd": []string{"/bin/x", "y z"}}, `["/bin/x","y z"]`},
		"only a cmd":       {map[string]any{"Cmd": []string{"x"}}, `["x"]`},
		"null lists":       {map[string]any{"Cmd": nil, "Entrypoint": []string{"e"}, "Env": nil, "Volumes": nil}, `["e"]`},
		"odd env":          {map[string]any{"Cmd": []string{"x"}, "Env": []string{"A=b=c d", "Ü=é", "B=é ü", "=x", "A=last", "EMPTY"}}, `["x"]`},
	} {
		t.Run(name, func(t *testing.T) {
			img := images.Image{Name: "example.com/" + strings.ReplaceAll(name, " ", "-") + ":1", Layers: [][]byte{oneLayer()}}
			img.EditConfig = func(c map[string]any) {
				if x.config != nil {
					c["config"] = x.config
				}
			}
			rec := importFile(t, st, writeFile(t, "x.tar", must(must(images.OCI(img)).Tar())))
			m, err := st.Manifest(rec)
			if err != nil {
				t.Fatal(err)
			}
			exec := "[]"
			if m.App.Exec != nil {
				exec = string(must(json.Marshal(m.App.Exec)))
			}
			if exec != x.want {
				t.Errorf("exec %s, want %s", exec, x.want)
			}
		})
	}
}

// TestArchiveCutAnywhere sweeps over archives: no cut leaves a name in the store.
func TestArchiveCutAnywhere(t *testing.T) {
	st := newStore(t)
	img := images.Image{Name: "example.com/x:1", Layers: [][]byte{oneLayer()}, Pack: images.Gzip}
	for name, data := range map[string][]byte{
		"oci":    must(must(images.OCI(img)).Tar()),
		"docker": must(images.Docker(img).Tar()),
		"gz":     must(images.Compress(images.Gzip, must(images.ACI(images.Manifest("example.com/x", "", nil), rootfs())))),
	} {
		end := len(data)
		if name != "gz" {
			end -= 1024 // the end-of-archive blocks say nothing
			for end > 0 && data[end-1] == 0 {
				end--
			}
		}
		for n := 1; n < end; n += 1 + end/60 {
			if rec, err := importWith(t.Context(), st, writeFile(t, "x", data[:n]), Options{Policy: unsigned}); err == nil {
				t.Errorf("%s cut at %d of %d became %s", name, n, end, rec.Name)
			}
			flipped := bytes.Clone(data)
			flipped[n] ^= 0x10
			rec, err := importWith(t.Context(), st, writeFile(t, "x", flipped), Options{Policy: unsigned})
			if err == nil { // a header that says nothing of the content
				if err := st.RemoveImage(t.Context(), rec.ID, none); err != nil {
					t.Fatal(err)
				}
			}
			checkClean(t, st)
		}
	}
}

// TestRefusedLeavesNothing: of an image that is refused, or of a file that is
// damaged, not even the layers that are as they should be wait for another try.
func TestRefusedLeavesNothing(t *testing.T) {
	good := must(images.Tar(rootfs()))
	packed := func(layers ...[]byte) string {
		dir := t.TempDir()
		if err := must(images.OCI(images.Image{Name: "example.com/x:1", Layers: layers})).WriteDir(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	link := must(images.Tar([]images.Entry{images.Link("l", "not/there")}))
	damaged := packed(good, oneLayer())
	blob := filepath.Join(damaged, "blobs/sha256", strings.TrimPrefix(images.Digest(oneLayer()), "sha256:"))
	if err := os.WriteFile(blob, bytes.Replace(oneLayer(), []byte("x"), []byte("y"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"a link to nothing":                  packed(good, link),
		"a link to nothing, below a symlink": packed(must(images.Tar([]images.Entry{images.Symlink("s", "d")})), must(images.Tar([]images.Entry{images.Link("s/l", "not/there")}))),
		"a damaged layer":                    damaged,
	} {
		st := newStore(t)
		if _, err := importWith(t.Context(), st, path, Options{Policy: unsigned, Parallel: 1}); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %v, class %s", name, err, errs.ClassOf(err))
		}
		if _, err := st.Collect(t.Context(), none, store.InterruptedGrace); err != nil {
			t.Error(err)
		}
		checkEmpty(t, st)
	}
	// That of a registry too, though of a blob that is wrong others stay.
	r := newRemote(t)
	r.publish("app", images.Image{Name: "1", Layers: [][]byte{good, link}})
	if _, _, _, err := r.fetch(PullNew, "app:1"); !errs.Is(err, errs.Corrupt) {
		t.Errorf("%v, class %s", err, errs.ClassOf(err))
	}
	if _, err := r.st.Collect(t.Context(), none, store.InterruptedGrace); err != nil {
		t.Error(err)
	}
	checkEmpty(t, r.st)
}

func TestSymlinksOfALayoutStayInside(t *testing.T) {
	st := newStore(t)
	img := images.Image{Name: "example.com/x:1", Layers: [][]byte{oneLayer()}}
	dir := t.TempDir()
	if err := must(images.OCI(img)).WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	outside := writeFile(t, "index.json", must(os.ReadFile(filepath.Join(dir, "index.json"))))
	if err := os.Remove(filepath.Join(dir, "index.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "index.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := importWith(t.Context(), st, dir, Options{Policy: unsigned}); err == nil {
		t.Error("index.json was read through a symlink")
	}
	checkClean(t, st)
}

func TestDockerArchiveWithLinks(t *testing.T) {
	st := newStore(t)
	img := images.Image{Name: "example.com/x:1", Layers: [][]byte{oneLayer(), oneLayer()}}
	files := images.Docker(img)
	// Old versions of docker save write a layer that comes twice as a symlink.
	var list []oci.Saved
	if err := json.Unmarshal(files["manifest.json"], &list); err != nil {
		t.Fatal(err)
	}
	var entries []images.Entry
	for name, data := range files {
		if name != list[0].Layers[1] {
			entries = append(entries, images.File(name, 0o644, string(data)))
		}
	}
	entries = append(entries, images.Symlink(list[0].Layers[1], "../"+list[0].Layers[0]))
	rec := importFile(t, st, writeFile(t, "x.tar", must(images.Tar(entries))))
	if len(rec.Layers) != 1 {
		t.Errorf("layers %q", rec.Layers)
	}
}
