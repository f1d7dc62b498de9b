package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
	"github.com/rkt-pods/rkt/stage0/pod"
)

const uuid = "aaaa0000-0000-0000-0000-000000000001"

func exitedView() view {
	code := 7
	begin := time.Date(2030, 1, 2, 3, 4, 5, 6e6, time.UTC)
	return view{
		uuid: uuid, state: pod.Exited, created: begin, started: begin.Add(time.Second), networks: []string{"none"},
		exit: &poddir.Exit{Code: 7, Cause: poddir.CausePolicy, App: "a", FinishedAt: begin.Add(time.Minute)},
		apps: []appView{
			{name: "a", imageID: "sha512-" + strings.Repeat("ab", 64), imageName: "example.com/a:1", status: &poddir.Status{App: "a", State: poddir.Exited, ExitCode: &code, Reason: poddir.Error}},
			{name: "b", imageID: "sha512-00", imageName: "example.com/b", status: &poddir.Status{App: "b", State: poddir.Exited, Reason: poddir.Aborted}},
		},
	}
}

func TestStatusText(t *testing.T) {
	t.Setenv("TZ", "UTC")
	var b bytes.Buffer
	if err := statusText(&b, exitedView()); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"state=exited", "exited=true", "exit=7", "exit-cause=policy", "exit-app=a", "app-a=7", "app-a-reason=Error", "app-b-reason=Aborted"} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("no %q in\n%s", line, b.String())
		}
	}
	// Nobody saw b's end, and networks none is no network.
	for _, not := range []string{"app-b=", "networks=", "pid="} {
		if strings.Contains(b.String(), not) {
			t.Errorf("%q in\n%s", not, b.String())
		}
	}
	running := exitedView()
	running.state, running.pid, running.exit, running.name, running.awaiting = pod.Running, 42, nil, "shop", "waits for b"
	running.apps[1].status = &poddir.Status{App: "b", State: poddir.Starting, Restarts: 2}
	b.Reset()
	if err := statusText(&b, running); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"name=shop", "ready=false", "awaiting=waits for b", "exited=false", "pid=42",
		"app-a-state=exited", "app-a=7", "app-b-state=starting", "app-b-restarts=2",
	} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("no %q in\n%s", line, b.String())
		}
	}
}

func TestList(t *testing.T) {
	v := exitedView()
	now := v.created.Add(2 * time.Hour)
	var b bytes.Buffer
	if err := printList(&b, []view{v, {uuid: uuid, state: pod.Preparing}}, listOptions{}, now); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	want := [][]string{
		{"UUID", "APP", "IMAGE NAME", "STATE", "CREATED", "STARTED", "NETWORKS", "NAME"},
		{"aaaa0000", "a", "example.com/a:1", "exited", "2 hours ago", "1 hour ago", ""},
		{"", "b", "example.com/b", "", "", "", ""},
		{"aaaa0000", "-", "-", "preparing", "", "", ""},
	}
	for i, cells := range want {
		for _, c := range cells {
			if !strings.Contains(lines[i], c) {
				t.Errorf("line %d: no %q in %q", i, c, lines[i])
			}
		}
	}
	b.Reset()
	if err := printList(&b, []view{v}, listOptions{full: true, noLegend: true}, now); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(b.String(), uuid) || !strings.Contains(b.String(), "sha512-abababababab\t") {
		t.Errorf("full:\n%s", b.String())
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := printJSON(&b, "json", exitedView().json()); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	app := got["apps"].([]any)[0].(map[string]any)
	if got["uuid"] != uuid || got["state"] != "exited" || len(got["app_names"].([]any)) != 2 || app["exit_code"] != 7.0 || app["state"] != "exited" {
		t.Errorf("%s", b.String())
	}
	if _, upstreams := got["name"]; upstreams {
		t.Error("the id stands under name")
	}
}

func TestAgo(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "now", time.Second: "1 second ago", 90 * time.Second: "1 minute ago", 49 * time.Hour: "2 days ago", 400 * 24 * time.Hour: "1 year ago", -time.Minute: "in the future",
	} {
		if got := ago(now.Add(-d), now); got != want {
			t.Errorf("%s: %q", d, got)
		}
	}
}

// TestSummary: what ordinary users see follows the kernel, not the file's age.
func TestSummary(t *testing.T) {
	self, err := proc.Self()
	if err != nil {
		t.Fatal(err)
	}
	s := poddir.Summary{UUID: uuid, State: "running", Apps: []poddir.SummaryApp{{Name: "a", Status: &poddir.Status{State: poddir.Running}}}}
	if v := viewOfSummary(s); v.state != pod.Prepared {
		t.Errorf("without supervisor: %s", v.state)
	}
	s.Supervisor = &poddir.Supervisor{ID: self}
	if v := viewOfSummary(s); v.state != pod.Running || v.pid != os.Getpid() {
		t.Errorf("alive: %+v", v)
	}
	s.Supervisor.Start++
	v := viewOfSummary(s)
	if v.state != pod.Exited || v.exit == nil || v.exit.Cause != poddir.CauseAborted || v.apps[0].status.Reason != poddir.Aborted {
		t.Errorf("dead: %+v", v)
	}
	group := t.TempDir()
	if err := os.WriteFile(filepath.Join(group, "cgroup.events"), []byte("populated 1\nfrozen 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Cgroup = group
	if v := viewOfSummary(s); v.state != pod.Exiting || v.exit != nil {
		t.Errorf("populated: %+v", v)
	}
}

func TestReport(t *testing.T) {
	capture := func(args []string, err error) (int, string) {
		f, ferr := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if ferr != nil {
			t.Fatal(ferr)
		}
		defer f.Close()
		code := (&globals{stderr: f}).report("run", args, err)
		text, ferr := os.ReadFile(f.Name())
		if ferr != nil {
			t.Fatal(ferr)
		}
		return code, string(text)
	}
	plain := errs.WithHint(errs.Newf(errs.NotFound, "pod x: gone"), "try y")
	for _, c := range []struct {
		args []string
		err  error
		code int
		text string
	}{
		{nil, nil, 0, ""},
		{nil, plain, 254, "run: pod x: gone\nrun: hint: try y\n"},
		{nil, withCode(7, nil), 7, ""},
		{nil, withCode(0, nil), 0, ""},
		{nil, withCode(10, plain), 10, "run: pod x: gone\nrun: hint: try y\n"},
		{[]string{"--format=json"}, plain, 254, `{"error":{"class":"not-found","message":"pod x: gone","hint":"try y"}}` + "\n"},
		{[]string{"--format", "json-pretty"}, errs.Newf(errs.Usage, "a <b>"), 254, `{"error":{"class":"usage","message":"a <b>","hint":"\"rkt help run\" shows how it is called"}}` + "\n"},
		{[]string{"--", "--format=json"}, errs.Newf(errs.Usage, "x"), 254, "run: x\nrun: hint: \"rkt help run\" shows how it is called\n"},
		{nil, errs.WithHint(errs.Newf(errs.Corrupt, "bad \x1b]0;t\a%s\u202e\u009b\xff", "\x1b[2J"), "see\r"), 254,
			`run: bad \x1b]0;t\a\x1b[2J\u202e\u009b\xff` + "\n" + `run: hint: see\r` + "\n"},
		{nil, errors.Join(errs.Newf(errs.Corrupt, "müde"), errs.Newf(errs.Corrupt, "two")), 254, "run: müde\nrun: two\n"},
	} {
		code, text := capture(c.args, c.err)
		if code != c.code || text != c.text {
			t.Errorf("%v %v: %d %q, want %d %q", c.args, c.err, code, text, c.code, c.text)
		}
	}
}
