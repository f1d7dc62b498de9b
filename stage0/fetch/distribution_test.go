package fetch

import (
	"archive/tar"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/tests/images"
	"github.com/rkt-pods/rkt/tests/registry"
	"github.com/rkt-pods/rkt/tests/rktfetch"
)

// TestDistributionAsUmoci fetches what another tool has pushed to a real registry,
// and compares each entry with what umoci unpacks of what that tool pulls.
func TestDistributionAsUmoci(t *testing.T) {
	needRoot(t)
	rktfetch.Program() // before there is another folder for temporary files
	// Memory takes attributes of 60 KiB; most disks don't.
	shm := must(os.MkdirTemp("/dev/shm", "rkt-test-"))
	t.Cleanup(func() { _ = os.RemoveAll(shm) })
	t.Setenv("TMPDIR", shm)
	long, attr := strings.Repeat("n", 255), strings.Repeat("v", 60<<10)
	deep := "deep/" + strings.Repeat(long+"/", 12)
	odd := []images.Entry{
		at(images.Dir("names", 0o755), 10), at(images.File("names/"+long, 0o644, "long"), 20), at(images.File("names/\xff\xfe\n\x1b[m", 0o600, "bytes"), 30),
		at(images.File(deep+"f", 0o644, "f"), 40), at(images.File("attr", 0o644, "a").XAttr("user.large", attr), 50),
		at(images.Dir("tree", 0o711), 60), at(images.Dir("tree/a", 0o701), 70), at(images.File("tree/a/b", 0o640, "b"), 80), images.Link("out", "tree/a/b"), images.Link("tree/in", "d/suid"),
		at(images.File("zero", 0o644, strings.Repeat("\x00", 1<<20)), 90),
	}
	// The folders of a long path get entries, since nobody says when they are from.
	for i := len("deep"); i < len(deep); i += len(long) + 1 {
		odd = append(odd, at(images.Dir(deep[:i], 0o750), int64(i)))
	}
	upper := []images.Entry{
		images.Whiteout("tree/a"), at(images.File("new", 0o644, "n"), 100), images.Link("d/again", "d/suid"), images.Link("names/other", "out"),
		at(images.Dir("d/sub", 0o700), 110), images.Opaque("d/sub"), at(images.File("d/sub/x", 0o600, "x"), 120),
		at(images.Dir("tree", 0o700), 130), at(images.Dir("tree/b", 0o755), 150), at(images.File("tree/b/under", 0o600, "u"), 140), images.Whiteout("names/" + long[:251]),
	}
	layers := [][]byte{layerOf(t, special(t), "--format=posix", "-S", "."), must(images.Tar(pax(odd))), must(images.Tar(pax(upper)))}
	host := registry.Distribution(t)
	for _, pack := range []images.Compression{images.None, images.Gzip, images.Zstd} {
		t.Run(string(pack), func(t *testing.T) {
			layout, back := t.TempDir(), t.TempDir()
			if err := must(images.OCI(images.Image{Name: "1.0", Layers: layers, Pack: pack})).WriteDir(layout); err != nil {
				t.Fatal(err)
			}
			name := "docker://" + host + "/a/" + string(pack) + ":1"
			copied(t, "--dest-tls-verify=false", "oci:"+layout+":1.0", name)
			copied(t, "--src-tls-verify=false", name, "oci:"+back+":1.0")
			r := &remoteTest{Registry: registry.New(""), t: t, st: newStore(t), host: host}
			rec, err := r.fetcher(PullNew).Resolve(t.Context(), r.ref("a/"+string(pack)+":1"))
			if err != nil {
				t.Fatal(err)
			}
			want := umoci(t, back, "1.0")
			if !strings.Contains(want["attr"], attr) || want["names/"+long] == "" || want[deep+"f"] == "" || want["tree/a"] != "" || want["names/other"] == "" {
				t.Error("umoci has not made what was asked for")
			}
			compare(t, merged(t, r.st, rec.Layers), maps.Clone(want))
			compare(t, rendered(t, r.st, rec), want)
			undamaged(t, r.st, rec)
		})
	}
}

// pax lets each entry have names and attributes of any kind.
func pax(entries []images.Entry) []images.Entry {
	for i := range entries {
		entries[i].Format = tar.FormatPAX
	}
	return entries
}

func copied(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("skopeo", append([]string{"copy", "-q"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("skopeo: %v\n%s", err, out)
	}
}
