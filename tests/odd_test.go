package tests

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/tests/images"
)

// TestOddImagesRun runs what builders have made and few expect.
func TestOddImagesRun(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	layer, err := images.Tar(busybox(t))
	if err != nil {
		t.Fatal(err)
	}
	echo := func(what string) []string { return []string{"/bin/sh", "-c", "echo " + what} }
	many := [][]byte{layer}
	for i := range 126 {
		l, err := images.Tar([]images.Entry{images.File(fmt.Sprintf("home/f%03d", i), 0o644, "x")})
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, l)
	}
	for name, x := range map[string]struct {
		config any
		layers [][]byte
		flags  []string
		want   string
	}{
		"null":             {json.RawMessage("null"), nil, []string{"--exec=/bin/echo", "--", "given"}, "given\n"},
		"empty-entrypoint": {map[string]any{"Entrypoint": []string{""}, "Cmd": echo("cmd")}, nil, nil, "cmd\n"},
		"only-a-cmd":       {map[string]any{"Cmd": echo("only")}, nil, nil, "only\n"},
		"words": {map[string]any{
			"Cmd": []string{"/bin/sh", "-c", `printf '%s|' "$A" "$B" "$C"`}, "Env": []string{"A=b=c d", "B= é ü ", "C=$A"},
			"Labels": map[string]string{"a=b c": "d = é", "": "x"},
		}, nil, nil, "b=c d| é ü |$A|"},
		"layers": {map[string]any{"Cmd": []string{"/bin/sh", "-c", "ls /home | grep -c f; stat -c %a /tmp /root"}}, many, nil, "126\n1777\n700\n"},
		"twice":  {map[string]any{"Cmd": echo("twice")}, [][]byte{layer, many[1], layer, many[1]}, nil, "twice\n"},
	} {
		img := images.Image{Name: "example.com/" + name + ":1", Layers: x.layers, Pack: images.Gzip}
		if img.Layers == nil {
			img.Layers = [][]byte{layer}
		}
		img.EditConfig = func(c map[string]any) { c["config"] = x.config }
		files, err := images.OCI(img)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "odd.oci")
		if err := files.WriteDir(dir); err != nil {
			t.Fatal(err)
		}
		res := h.rkt(append([]string{"run", "--insecure-options=image", dir}, x.flags...)...)
		if res.code != 0 || res.stdout != x.want {
			t.Errorf("%s: want %q: %s", name, x.want, res)
		}
	}
	if res := h.rkt("image", "verify", "--all"); res.code != 0 || strings.Count(res.stdout, "successfully verified") != 6 {
		t.Errorf("%s", res)
	}
}
