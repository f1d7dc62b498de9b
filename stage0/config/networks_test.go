package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

func netd(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "net.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, "net.d", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func names(list []poddir.Network) string {
	var out []string
	for _, n := range list {
		out = append(out, n.Name+"@"+filepath.Base(n.Source))
	}
	return strings.Join(out, " ")
}

func TestLoadNetworks(t *testing.T) {
	system := netd(t, map[string]string{
		"20-b.conf": `{"name":"b","type":"bridge"}`, "10-a.conflist": `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"ptp"}]}`,
		"ignored.json": `{`, "ignored.conf.bak": `{`,
	})
	local := netd(t, map[string]string{"mine.conf": `{"name":"b","type":"macvlan"}`, "default.conf": `{"name":"default","type":"ptp"}`})
	n, err := LoadNetworks(Dirs{System: system, Local: local})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(n.List); got != "default@default.conf default-restricted@. a@10-a.conflist b@mine.conf" {
		t.Errorf("networks %s", got)
	}
	want := []string{
		`overriding "default" network with one from ` + filepath.Join(local, "net.d/default.conf"),
		`overriding "b" network with one from ` + filepath.Join(local, "net.d/mine.conf"),
	}
	if !slices.Equal(n.Warnings, want) {
		t.Errorf("warnings %q", n.Warnings)
	}
	for _, c := range []struct{ names, want string }{
		{"b default", "b@mine.conf default@default.conf"}, {"all", "default@default.conf a@10-a.conflist b@mine.conf"}, {"none", ""}, {"host", ""},
	} {
		list, err := n.Choose(strings.Fields(c.names), map[string][][2]string{"b": {{"IP", "x"}}})
		if err != nil || names(list) != c.want {
			t.Errorf("%s: %s, %v", c.names, names(list), err)
		}
	}
	if list, err := n.Choose([]string{"b"}, map[string][][2]string{"b": {{"IP", "x"}}}); err != nil || len(list[0].Args) != 1 {
		t.Errorf("arguments: %v, %v", list, err)
	}
	_, err = n.Choose([]string{"c"}, nil)
	if !errs.Is(err, errs.NotFound) || len(errs.Hints(err)) != 1 || !strings.Contains(errs.Hints(err)[0], "default, default-restricted, a, b, host, none") {
		t.Errorf("unknown: %v, %v", err, errs.Hints(err))
	}
}

func TestBadNetworks(t *testing.T) {
	for text, want := range map[string]string{
		`{`: "x.conf: unexpected end of JSON input", `{"type":"ptp"}`: "x.conf: name: missing",
		`{"name":"host","type":"ptp"}`: `x.conf: name "host": has a meaning of its own`,
		`{"name":"n"}`:                 "x.conf: neither type nor plugins",
	} {
		if _, err := LoadNetworks(Dirs{Local: netd(t, map[string]string{"x.conf": text})}); !errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	twice := netd(t, map[string]string{"1.conf": `{"name":"n","type":"a"}`, "2.conf": `{"name":"n","type":"b"}`})
	if _, err := LoadNetworks(Dirs{Local: twice}); err == nil || !strings.Contains(err.Error(), `2.conf: network "n": is in `+filepath.Join(twice, "net.d/1.conf")+" too") {
		t.Errorf("one name twice: %v", err)
	}
}

func TestPluginDirs(t *testing.T) {
	got := PluginDirs(Dirs{System: "/usr/lib/rkt", Local: "/etc/rkt"}, "/own")
	if !slices.Equal(got, []string{"/etc/rkt/net.d", "/usr/lib/rkt/plugins/net", "/own"}) {
		t.Errorf("got %q", got)
	}
}
