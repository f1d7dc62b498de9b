package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// movesTogether fetches the images and takes them to an empty store in one file:
// each is what it was, vouched for by the same key.
func (p *publisher) movesTogether(refs ...string) {
	p.t.Helper()
	var ids, names []string
	for _, ref := range refs {
		ids = append(ids, p.ok("fetch", "--full", ref))
		names = append(names, strings.TrimPrefix(ref, "docker://"))
	}
	list := func() string {
		return p.ok("image", "list", "--full", "--no-legend", "--fields=id,name,trust", "--sort=name")
	}
	before, dir := list(), p.t.TempDir()
	file, folder := filepath.Join(dir, "all.tar"), filepath.Join(dir, "all")
	p.ok(slices.Concat([]string{"image", "export"}, names, []string{file})...)
	p.ok(slices.Concat([]string{"image", "export", "--format=oci-dir"}, names, []string{folder})...)
	for _, path := range []string{file, folder} {
		p.ok(slices.Concat([]string{"image", "rm"}, ids)...)
		p.ok("image", "import", path)
		if after := list(); after != before {
			p.t.Errorf("%s: images\n%s\nwere\n%s", path, after, before)
		}
		p.ok("image", "verify", "--trust", "--all")
	}
	p.inPlace(names[0], ids)
	// The name in the layout is the one that is judged.
	forged := filepath.Join(dir, "all/index.json")
	p.writeFile(forged, bytes.Replace(must(os.ReadFile(forged)), []byte(names[0]), []byte("example.com/other:1"), 1))
	res := p.run("image", "import", folder)
	if res.code != 254 || !strings.Contains(res.stderr, "example.com/other:1") || strings.Contains(res.stderr, names[1]) {
		p.t.Errorf("forged: %s", res)
	}
	if got := p.ok("image", "list", "--no-legend", "--fields=name"); got != strings.Join(names[1:], "\n") {
		p.t.Errorf("forged: images %q", got)
	}
	p.ok(slices.Concat([]string{"image", "rm"}, names[1:])...)
}

// inPlace moves the images to a frozen store, and removes their keys: its images
// are judged by the keys and rules of the host that uses them.
func (p *publisher) inPlace(name string, ids []string) {
	p.t.Helper()
	dir := filepath.Join(p.t.TempDir(), "store")
	if out, err := exec.Command("cp", "-a", filepath.Join(p.dir, "store"), dir).CombinedOutput(); err != nil {
		p.t.Fatalf("cp: %v\n%s", err, out)
	}
	p.writeFile(filepath.Join(dir, "frozen"), nil)
	p.ok(slices.Concat([]string{"image", "rm"}, ids)...)
	list := filepath.Join(p.config, "paths.d/stores.json")
	p.writeFile(list, fmt.Appendf(nil, `{"rktKind":"paths","rktVersion":"v1","stores":[%q]}`, dir))
	p.ok("fetch", "--pull-policy=never", name)
	p.ok("image", "verify", "--trust", "--all")
	away := filepath.Join(p.t.TempDir(), "keys")
	keys := filepath.Join(p.config, "trustedkeys")
	if err := os.Rename(keys, away); err != nil {
		p.t.Fatal(err)
	}
	if res := p.run("fetch", "--pull-policy=never", name); res.code != 254 || !strings.Contains(res.stderr, "image of the additional store "+dir) || !strings.Contains(res.stderr, "no public key is trusted") {
		p.t.Errorf("without a key: %s", res)
	}
	for _, err := range []error{os.Rename(away, keys), os.Remove(list)} {
		if err != nil {
			p.t.Fatal(err)
		}
	}
}
