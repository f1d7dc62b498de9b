package tests

import (
	"path/filepath"
	"testing"

	"github.com/rkt-pods/rkt/tests/images"
)

// TestImageUserGroups: an OCI image that names a user and no group means the
// groups that its own /etc/passwd and /etc/group have for the user.
func TestImageUserGroups(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	layer, err := images.Tar(append(busybox(t),
		images.File("etc/passwd", 0o644, "root:x:0:0::/:/bin/sh\nworker:x:1234:777::/:/bin/sh\n"),
		images.File("etc/group", 0o644, "root:x:0:\nstaff:x:777:\nextra:x:50:worker,root\nmore:x:51:other,worker\nnone:x:52:other\n")))
	if err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]string{
		"worker":     "1234 777 777 50 51\n",
		"1234":       "1234 777 777 50 51\n",
		"worker:50":  "1234 50 50\n",
		"4321":       "4321 0 0\n",
		"4321:extra": "4321 50 50\n",
		"":           "0 0 0 50\n",
	} {
		files, err := images.OCI(images.Image{
			Name: "example.com/user:1", Layers: [][]byte{layer},
			Config: map[string]any{"User": user, "Cmd": []string{"/bin/sh", "-c", "echo $(id -u) $(id -g) $(id -G)"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "user.oci")
		if err := files.WriteDir(dir); err != nil {
			t.Fatal(err)
		}
		if res := h.rkt("run", "--insecure-options=image", dir); res.code != 0 || res.stdout != want {
			t.Errorf("user %q: want %q: %s", user, want, res)
		}
	}
}
