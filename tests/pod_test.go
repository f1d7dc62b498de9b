package tests

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deadline is how long anything that must happen may take on a busy machine.
const deadline = 2 * time.Minute

// app is one app of a test pod, a shell script unless Exec is set.
type app struct {
	name   string
	script string
	flags  []string
}

// runArgs is the command line of a pod of these apps, from the ACI.
func runArgs(uuidFile string, flags []string, apps ...app) []string {
	args := append([]string{"run", "--insecure-options=image", "--uuid-file-save=" + uuidFile}, flags...)
	for i, a := range apps {
		if i > 0 {
			args = append(args, "---")
		}
		args = append(args, image("busybox.aci"), "--name="+a.name)
		args = append(args, a.flags...)
		if a.script != "" {
			args = append(args, "--exec=/bin/sh", "--", "-c", a.script)
		}
	}
	return args
}

// pod is one pod of a test, in the foreground or started.
type pod struct {
	*host
	uuidFile string
	cmd      *exec.Cmd
	stdout   *bytes.Buffer
	stderr   *bytes.Buffer
	ended    chan result
}

// start starts a pod and returns at once.
func (h *host) start(flags []string, apps ...app) *pod {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "uuid")
	return h.begin(file, runArgs(file, flags, apps...)...)
}

// launch is start for a command line that names its apps in its own way.
func (h *host) launch(args ...string) *pod {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "uuid")
	return h.begin(file, append(args, "--uuid-file-save="+file)...)
}

func (h *host) begin(uuidFile string, args ...string) *pod {
	h.t.Helper()
	p := &pod{host: h, uuidFile: uuidFile, stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}, ended: make(chan result, 1)}
	p.cmd = h.command(args...)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	p.cmd.WaitDelay = 5 * time.Second
	// A signal for the test's group must not reach the pod.
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	go func() {
		err := p.cmd.Wait()
		if p.cmd.ProcessState == nil {
			p.ended <- result{args, -1, "", err.Error()}
			return
		}
		p.ended <- result{args, p.cmd.ProcessState.ExitCode(), p.stdout.String(), p.stderr.String()}
	}()
	h.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		p.wait() // else gc finds it running
	})
	return p
}

// wait returns how the pod's command ended.
func (p *pod) wait() result {
	p.t.Helper()
	select {
	case res := <-p.ended:
		p.ended <- res
		return res
	case <-time.After(deadline):
		p.t.Fatalf("the pod did not end: %s", p.rkt("list"))
		return result{}
	}
}

// uuid waits for the pod's id.
func (p *pod) uuid() string {
	p.t.Helper()
	var id string
	until(p.t, "the pod has an id", func() bool {
		data, err := os.ReadFile(p.uuidFile)
		id = strings.TrimSpace(string(data))
		return err == nil && id != ""
	})
	return id
}

// status is what `rkt status --format=json` says.
type status struct {
	UUID  string `json:"uuid"`
	State string `json:"state"`
	PID   int    `json:"pid"`
	Exit  *struct {
		Code    int    `json:"code"`
		Cause   string `json:"cause"`
		App     string `json:"app"`
		Derived bool   `json:"derived"`
	} `json:"exit"`
	Apps []struct {
		Name   string `json:"name"`
		Status *struct {
			State    string `json:"state"`
			PID      int    `json:"pid"`
			ExitCode *int   `json:"exitCode"`
			Signal   int    `json:"signal"`
			Reason   string `json:"reason"`
			LogLines uint64 `json:"logLines"`
		} `json:"status"`
	} `json:"apps"`
}

func (h *host) status(uuid string) status {
	h.t.Helper()
	var s status
	if err := json.Unmarshal([]byte(h.must("status", "--format=json", uuid)), &s); err != nil {
		h.t.Fatal(err)
	}
	return s
}

// running waits until all apps of the pod run.
func (p *pod) running() status {
	p.t.Helper()
	var s status
	until(p.t, "all apps run", func() bool {
		select {
		case res := <-p.ended:
			p.ended <- res
			p.t.Fatalf("the pod ended early: %s", res)
		default:
		}
		res := p.rkt("status", "--format=json", p.uuid())
		if res.code != 0 || json.Unmarshal([]byte(res.stdout), &s) != nil {
			return false
		}
		for _, a := range s.Apps {
			if a.Status == nil || a.Status.State != "running" {
				return false
			}
		}
		return len(s.Apps) > 0
	})
	return s
}

// until waits for something that gives no event to this process. It looks
// often, but ever less so as not to slow down what it waits for, and gives up
// late, so a slow machine only makes it slow.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	pause := 10 * time.Millisecond
	for end := time.Now().Add(deadline); ; {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(pause)
		pause = min(pause*3/2, 300*time.Millisecond)
	}
}

// touch makes a file that somebody waits for.
func touch(t testing.TB, elem ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(elem...), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}
