package cni

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/testkit"
)

func TestParse(t *testing.T) {
	l, err := Parse([]byte(`{"name":"n","type":"ptp"}`))
	if err != nil || l.Version != "0.1.0" || len(l.Plugins) != 1 || l.Plugins[0].Type != "ptp" {
		t.Errorf("one plugin, no version: %+v, %v", l, err)
	}
	l, err = Parse([]byte(`{"cniVersion":"0.4.0","cniVersions":["0.3.1","1.1.0","9.9.9"],"name":"n","disableCheck":"true","plugins":[{"type":"a"},{"type":"b"}]}`))
	if err != nil || l.Version != "1.1.0" || len(l.Plugins) != 2 || !l.DisableCheck || l.DisableGC {
		t.Errorf("list: %+v, %v", l, err)
	}
	for text, want := range map[string]string{
		`{`:                                     "unexpected end",
		`{"type":"x"}`:                          "name: missing",
		`{"name":"n"}`:                          "neither type nor plugins",
		`{"name":"n","plugins":[]}`:             "neither type nor plugins",
		`{"name":"../n","type":"x"}`:            "only letters",
		`{"name":"n","type":"../x"}`:            "not the name of a program",
		`{"name":"n","plugins":[{"name":"x"}]}`: "plugin 1: type: missing",
		`{"name":"n","type":"x","cniVersion":"7.0.0"}`:    `cniVersion "7.0.0": only`,
		`{"name":"n","type":"x","disableGC":"yes"}`:       "neither true nor false",
		`{"name":"n","type":"x","cniVersions":["7","8"]}`: `cniVersion "7, 8"`,
		`[]`:                         "can't be an array",
		`{"name":5,"type":"x"}`:      "name: can't be a number",
		`{"name":"n","plugins":[5]}`: "plugin 1: can't be a number",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestParseResult(t *testing.T) {
	for version, text := range map[string]string{
		"0.2.0": `{"ip4":{"ip":"10.1.0.2/24","gateway":"10.1.0.1","routes":[{"dst":"0.0.0.0/0"}]},"dns":{"nameservers":["10.1.0.1"]}}`,
		"1.0.0": `{"interfaces":[{"name":"br0"},{"name":"eth0","sandbox":"/x"}],"ips":[{"address":"10.1.0.1/24","interface":0},{"address":"10.1.0.2/24","interface":1,"gateway":"10.1.0.1"}],"dns":{"nameservers":["10.1.0.1"]}}`,
	} {
		r, err := ParseResult([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		if ips := r.PodIPs(); len(ips) != 1 || ips[0].String() != "10.1.0.2/24" || !r.DNS.Given() {
			t.Errorf("%s: %v, %+v", version, ips, r)
		}
	}
	if _, err := ParseResult([]byte(`{"ips":[{"address":"10.1.0.2"}]}`)); !errs.Is(err, errs.Corrupt) {
		t.Errorf("an address without prefix: %v", err)
	}
}

// plugin writes a program that notes its calls, and does what the script says.
func plugin(t *testing.T, dir, name, script string) {
	t.Helper()
	const note = `#!/bin/sh
conf=$(cat)
echo "$CNI_COMMAND ${0##*/} $CNI_CONTAINERID $CNI_IFNAME $CNI_ARGS $conf" >>"${0%/*}/calls"
`
	testkit.Program(t, filepath.Join(dir, name), []byte(note+script))
}

func calls(t *testing.T, dir string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	plugin(t, dir, "first", `[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.2/24"}]}'; exit 0`)
	plugin(t, dir, "second", `[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.3/24"}]}'; exit 0`)
	r := &Runner{Dirs: []string{"/nowhere", dir}, Deadline: 10 * time.Second}
	l, err := Parse([]byte(`{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"first","x":1},{"type":"second"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a := Attachment{ContainerID: "id", IfName: "eth0", NetNS: "/ns", Args: [][2]string{{"IP", "10.1.0.2"}, {"K", "V"}}}
	ctx := context.Background()
	result, err := r.Add(ctx, l, a)
	if err != nil || !strings.Contains(string(result), "10.1.0.3") {
		t.Fatalf("%s, %v", result, err)
	}
	for _, f := range []func() error{
		func() error { return r.Check(ctx, l, a, result) },
		func() error { return r.Del(ctx, l, a, result) },
		func() error { return r.GC(ctx, l, []Attachment{a}) },
	} {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
	var order []string
	for _, c := range calls(t, dir) {
		w := strings.SplitN(c, " ", 6)
		order = append(order, w[0]+" "+w[1])
		var conf map[string]json.RawMessage
		if err := json.Unmarshal([]byte(w[len(w)-1]), &conf); err != nil && w[0] != "GC" {
			t.Errorf("%s: %v", c, err)
		}
		wantPrev := w[0] != "ADD" && w[0] != "GC" || w[1] == "second" && w[0] == "ADD"
		if (conf["prevResult"] != nil) != wantPrev {
			t.Errorf("previous result: %s", c)
		}
		if w[0] != "GC" && (w[2] != "id" || w[3] != "eth0" || w[4] != "IgnoreUnknown=1;IP=10.1.0.2;K=V") {
			t.Errorf("arguments: %s", c)
		}
		if w[0] == "GC" && !strings.Contains(c, `"cni.dev/valid-attachments":[{"containerID":"id","ifname":"eth0"}]`) {
			t.Errorf("valid attachments: %s", c)
		}
	}
	const want = "ADD first,ADD second,CHECK first,CHECK second,DEL second,DEL first,GC first,GC second"
	if got := strings.Join(order, ","); got != want {
		t.Errorf("order %s", got)
	}
}

func TestRunFails(t *testing.T) {
	dir := t.TempDir()
	plugin(t, dir, "says", `echo '{"code":7,"msg":"bad config","details":"no subnet"}'; echo noise >&2; exit 1`)
	plugin(t, dir, "dies", `echo only this >&2; exit 3`)
	plugin(t, dir, "later", `echo '{"code":11,"msg":"try again"}'; exit 1`)
	plugin(t, dir, "nonsense", `echo '{'`)
	plugin(t, dir, "hangs", `echo waiting for godot >&2; sleep 1000 & echo $! >"${0%/*}/child"; wait`)
	plugin(t, dir, "floods", `yes | head -c 3000000`)
	plugin(t, dir, "colours", `printf '\033[31mred' >&2; exit 3`)
	plugin(t, dir, "lists", `echo '[]'`)
	plugin(t, dir, "leaves", `setsid sleep 30 & echo $! >"${0%/*}/left"; echo '{}'`)
	defer func() {
		left, err := os.ReadFile(filepath.Join(dir, "left"))
		if pid, perr := strconv.Atoi(strings.TrimSpace(string(left))); err == nil && perr == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
		}
	}()
	r := &Runner{Dirs: []string{dir}, Deadline: 2 * time.Second}
	for name, want := range map[string]string{
		"says":     "plugin says: add: bad config; no subnet (it said: noise)",
		"dies":     "plugin dies: add: exit status 3 (it said: only this)",
		"later":    "plugin later: add: try again",
		"nonsense": "plugin nonsense: result: unexpected end of JSON input",
		"missing":  "plugin missing: in none of " + dir,
		"hangs":    "plugin hangs: add: no answer after 2s, killed (it said: waiting for godot)",
		"colours":  `plugin colours: add: exit status 3 (it said: \x1b[31mred)`,
		"lists":    "plugin lists: result: can't be an array",
		"leaves":   "plugin leaves: add: has ended, but what it started keeps its output open",
		"floods":   "plugin floods: add: more than 1048576 bytes of output",
	} {
		l, err := Parse([]byte(`{"name":"n","type":"` + name + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Add(context.Background(), l, Attachment{ContainerID: "id", IfName: "eth0"})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
		class := map[string]errs.Class{"later": errs.Unavailable, "hangs": errs.Unavailable, "missing": errs.NotFound}[name]
		if class != "" && errs.ClassOf(err) != class {
			t.Errorf("%s: class %s", name, errs.ClassOf(err))
		}
	}
	// What the hanging plugin had started is killed with it.
	child, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/stat")
	if err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("still there: %s", stat)
	}
}

// TestDelGoesOn: one plugin's failure keeps none from being asked.
func TestDelGoesOn(t *testing.T) {
	dir := t.TempDir()
	plugin(t, dir, "good", "exit 0")
	plugin(t, dir, "bad", "exit 1")
	r := &Runner{Dirs: []string{dir}, Deadline: 10 * time.Second}
	l, err := Parse([]byte(`{"cniVersion":"0.3.1","name":"n","plugins":[{"type":"good"},{"type":"bad"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Del(context.Background(), l, Attachment{}, []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "plugin bad: del") {
		t.Error(err)
	}
	got := calls(t, dir)
	if len(got) != 2 || strings.Contains(got[0]+got[1], "prevResult") {
		t.Errorf("calls %q: both, and none with a result, which this version doesn't know", got)
	}
	if r.Check(context.Background(), l, Attachment{}, nil) != nil || r.GC(context.Background(), l, nil) != nil || len(calls(t, dir)) != 2 {
		t.Error("this version has neither CHECK nor GC")
	}
}

func TestBuiltin(t *testing.T) {
	var got Call
	r := &Runner{Deadline: time.Second, Builtin: map[string]CallFunc{"own": func(_ context.Context, c Call) ([]byte, error) {
		got = c
		return []byte(`{}`), nil
	}}}
	l, err := Parse([]byte(`{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"own"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Add(context.Background(), l, Attachment{ContainerID: "id", IfName: "eth3"}); err != nil || got.Command != "ADD" || got.IfName != "eth3" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestSearchPath: cron and others leave out the folders of nft and iptables.
func TestSearchPath(t *testing.T) {
	for path, want := range map[string]string{
		"":                       "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin",
		"/usr/bin:/bin":          "/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
		"/opt/x:/usr/sbin:/sbin": "/opt/x:/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin",
	} {
		if got := searchPath(path); got != want {
			t.Errorf("%q: %s", path, got)
		}
	}
	t.Setenv("PATH", "/nowhere")
	if got, err := Program("sh"); err != nil || filepath.Base(got) != "sh" {
		t.Errorf("sh: %q, %v", got, err)
	}
	if got, err := Program("no-such-program"); err == nil {
		t.Errorf("found %s", got)
	}
}
