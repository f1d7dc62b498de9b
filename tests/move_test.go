package tests

import (
	"bytes"
	"os"
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
	p.ok(slices.Concat([]string{"image", "rm"}, ids)...)
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
