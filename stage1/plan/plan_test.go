package plan

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/limits"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

var update = flag.Bool("update", false, "rewrite the golden plans")

// TestGolden compiles testdata/*.txtar. In each, pod.json is the manifest;
// options.json, images.json, host.json, ids.json and term are optional; plan is what
// comes out, one line a thing, or the error.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := compileGolden(t, ar)
			i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == "plan" })
			if *update {
				if i < 0 {
					ar.Files, i = append(ar.Files, txtar.File{Name: "plan"}), len(ar.Files)
				}
				ar.Files[i].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if i < 0 || string(ar.Files[i].Data) != got {
				t.Errorf("the plan differs (-update rewrites it); got:\n%s", got)
			}
		})
	}
}

// inProfile stands for the library's tables, which have a call that the
// profile lacks.
func inProfile(call string) bool {
	return call == "keyctl" || slices.ContainsFunc(seccomp.DefaultProfile().Syscalls, func(s *seccomp.Syscall) bool { return slices.Contains(s.Names, call) })
}

func compileGolden(t *testing.T, ar *txtar.Archive) string {
	t.Helper()
	in := Input{
		UUID: "6c9b5f0e-7a46-4c2b-9d53-0a4bd9b1c0de", Pod: &podspec.Pod{},
		Host: Host{Arch: "amd64", Bounding: append(appc.DefaultCapabilities(), "CAP_SYS_ADMIN", "CAP_SYS_PTRACE"), ResolvConf: new("# the host's\nnameserver 127.0.0.53\nnameserver 192.0.2.53\nsearch example.com\n"), MachineHosts: true, KnowsCall: inProfile},
	}
	into := map[string]any{"pod.json": in.Pod, "options.json": &in.Options, "images.json": &in.Images, "host.json": &in.Host, "ids.json": &in.IDs}
	for _, f := range ar.Files {
		if f.Name == "term" {
			in.Term = strings.TrimSpace(string(f.Data))
		}
		if v, ok := into[f.Name]; ok {
			if err := json.Unmarshal(f.Data, v); err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
		}
	}
	if in.Images == nil {
		in.Images = map[string]poddir.AppImage{}
		for _, a := range in.Pod.Apps {
			in.Images[a.Name] = poddir.AppImage{ID: "sha512-1", Lowers: []string{"/layers/" + a.Name}}
		}
	}
	pod, err := Compile(in)
	if err != nil {
		text := fmt.Sprintf("error %s: %v\n", errs.ClassOf(err), err)
		for _, h := range errs.Hints(err) {
			text += "hint: " + h + "\n"
		}
		return text
	}
	verbose := slices.ContainsFunc(ar.Files, func(f txtar.File) bool { return f.Name == "verbose" })
	return dump(pod, in.Host.Arch, verbose)
}

// dump prints the default filter and the default paths and devices only if
// verbose.
func dump(p Pod, arch string, verbose bool) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " ") + "\n")
	}
	line("pod %s hostname=%s hostnet=%v durable=%v copy=%v%s", p.UUID, p.Hostname, p.Network.Host, p.Durable, p.Copy, word(p.IDs != nil, fmt.Sprintf(" users=%v", p.IDs)))
	for _, v := range p.Volumes {
		switch v.Kind {
		case podspec.VolumeHost:
			line("volume %s host %s recursive=%v%s%s%s", v.Name, v.Source, v.Recursive, word(v.IDMap, " idmap"), word(v.FollowSymlinks, " followsymlinks"), word(v.Label != "", " label="+v.Label))
		case podspec.VolumeImage:
			line("volume %s image %s", v.Name, v.Source)
		case podspec.VolumeSecret:
			line("volume %s secret %s%v %04o %d:%d", v.Name, v.Source, v.Credentials, v.Mode, v.UID, v.GID)
		default:
			line("volume %s %s %04o %d:%d seed=%s%s%s%s", v.Name, strings.TrimSpace(v.Kind+" "+v.Source), v.Mode, v.UID, v.GID, v.SeedApp, v.SeedPath, word(v.IDMap, " idmap"), word(v.Size > 0, fmt.Sprintf(" size=%d", v.Size)))
		}
	}
	for _, s := range p.Sysctls {
		line("sysctl %s=%s", s.Key, s.Value)
	}
	for _, n := range p.Network.Attachments {
		line("network %s %s args=%v", n.IfName, n.Name, n.Args)
	}
	if b := p.Network.Bandwidth; b != nil {
		line("bandwidth %d optional=%v %s", b.Rate, b.Optional, b.Why)
	}
	for _, f := range p.Network.Ports {
		line("port %s app=%s %s %s:%d to %d", f.Name, f.App, f.Protocol, f.HostIP, f.HostPort, f.PodPort)
	}
	for _, f := range p.Files {
		line("file %s source=%q ifmissing=%v content=%q", f.Target, f.Source, f.IfMissing, f.Content)
	}
	dumpLimits(line, "limits", p.Limits, p.Optional)
	dumpLimits(line, "weights", p.Weights, nil)
	if p.Score != nil {
		line("supervisor oom-score-adj %d", *p.Score)
	}
	if p.ShmSize > 0 {
		line("shm %d", p.ShmSize)
	}
	for _, r := range p.Results {
		line("result %s", r)
	}
	for _, a := range p.Apps {
		dumpApp(line, a, arch, verbose)
	}
	return b.String()
}

func dumpApp(line func(string, ...any), a App, arch string, verbose bool) {
	line("app %s", a.Name)
	line("  argv %q", a.Argv)
	for _, e := range a.Env {
		line("  env %s", e)
	}
	line("  cwd %s", a.Cwd)
	line("  user %s group %s groups %v fromfile=%v groupisuser=%v", a.User, a.Group, a.Groups, a.GroupsFromFile, a.GroupIsUser)
	line("  rootfs readonly=%v lowers=%v", a.ReadOnlyRootFS, a.Lowers)
	for _, m := range a.Mounts {
		line("  mount %s %s volume=%s ro=%v recursive=%v%s%s %s", m.Target, m.Type, m.Volume, m.ReadOnly, m.Recursive,
			word(m.Private, " private"), word(m.SubPath != "", " subpath="+m.SubPath), strings.Join(m.Options, ","))
	}
	dumpPaths(line, a, verbose)
	for _, d := range a.DeviceRequests {
		line("  device request %s", d)
	}
	if a.Umask != DefaultUmask {
		line("  umask %04o", a.Umask)
	}
	line("  capabilities %s", strings.Join(a.Capabilities, " "))
	line("  no-new-privileges %v", a.NoNewPrivs)
	if !verbose && reflect.DeepEqual(a.Seccomp, DefaultFilter(arch, a.Capabilities)) {
		line("  filter default for these capabilities")
	} else {
		dumpFilter(line, a.Seccomp)
	}
	if a.OOMScoreAdj != nil {
		line("  oom-score-adj %d", *a.OOMScoreAdj)
	}
	line("  stop signal %d timeout %s", a.StopSignal, a.StopTimeout)
	if a.PreStart != nil {
		line("  pre-start %q", a.PreStart)
	}
	if a.PostStop != nil {
		line("  post-stop %q", a.PostStop)
	}
	dumpLimits(line, "  limits", a.Limits, a.Optional)
	for _, l := range a.Rlimits {
		line("  rlimit %s %d:%d", l.Type, l.Soft, l.Hard)
	}
	if a.Nice != nil {
		line("  nice %d", *a.Nice)
	}
	if a.ProcessLabel+a.AppArmor != "" {
		line("  label %s profile %s", a.ProcessLabel, a.AppArmor)
	}
	for _, r := range a.Results {
		line("  result %s", r)
	}
	for _, n := range a.Notes {
		line("  note %s", n)
	}
}

func dumpLimits(line func(string, ...any), what string, s limits.Set, optional []string) {
	if s.Empty() {
		return
	}
	data, _ := json.Marshal(s)
	text := fmt.Sprintf("%s %s", what, data)
	if len(optional) > 0 {
		text += " optional=" + strings.Join(optional, ",")
	}
	line("%s", text)
}

func word(is bool, s string) string {
	if is {
		return s
	}
	return ""
}

func dumpPaths(line func(string, ...any), a App, verbose bool) {
	var def App
	paths(&def, false)
	if !verbose && reflect.DeepEqual([]any{a.MaskedPaths, a.ReadOnlyPaths, a.Devices, a.AllDevices},
		[]any{def.MaskedPaths, def.ReadOnlyPaths, def.Devices, false}) {
		line("  paths and devices default")
		return
	}
	for _, p := range a.MaskedPaths {
		line("  hide %s", p)
	}
	for _, p := range a.ReadOnlyPaths {
		line("  read-only %s", p)
	}
	line("  devices all=%v", a.AllDevices)
	for _, d := range a.Devices {
		line("  device %s %c %d:%d %04o %s rule=%v", d.Path, d.Type, d.Major, d.Minor, d.Mode, d.Access, d.RuleOnly)
	}
}

func dumpFilter(line func(string, ...any), f *specs.LinuxSeccomp) {
	if f == nil {
		line("  filter none")
		return
	}
	errno := func(n *uint) string {
		if n == nil {
			return ""
		}
		return fmt.Sprintf("/%d", *n)
	}
	line("  filter %s%s %v", f.DefaultAction, errno(f.DefaultErrnoRet), f.Architectures)
	for _, s := range f.Syscalls {
		if len(s.Names) > 4 {
			line("  rule %s%s %s … %s", s.Action, errno(s.ErrnoRet), s.Names[0], s.Names[len(s.Names)-1])
		} else {
			line("  rule %s%s %s %v", s.Action, errno(s.ErrnoRet), strings.Join(s.Names, " "), s.Args)
		}
	}
}

func TestDefaultFilterFollowsCapabilities(t *testing.T) {
	allowed := func(f *specs.LinuxSeccomp, name string) bool {
		return slices.ContainsFunc(f.Syscalls, func(s specs.LinuxSyscall) bool {
			return s.Action == specs.ActAllow && len(s.Args) == 0 && slices.Contains(s.Names, name)
		})
	}
	plain := DefaultFilter("amd64", appc.DefaultCapabilities())
	admin := DefaultFilter("amd64", append(appc.DefaultCapabilities(), "CAP_SYS_ADMIN"))
	for name, want := range map[string][2]bool{
		"read": {true, true}, "chroot": {true, true}, "arch_prctl": {true, true},
		"mount": {false, true}, "clone3": {false, true}, "setns": {false, true},
		"kexec_load": {false, false}, "init_module": {false, false}, "keyctl": {false, false},
	} {
		if got := [2]bool{allowed(plain, name), allowed(admin, name)}; got != want {
			t.Errorf("%s: by default and with CAP_SYS_ADMIN allowed %v, want %v", name, got, want)
		}
	}
	if plain.DefaultAction != specs.ActErrno {
		t.Errorf("default action %s", plain.DefaultAction)
	}
	// C libraries try clone3 first and need ENOSYS to go back to clone.
	if !slices.ContainsFunc(plain.Syscalls, func(s specs.LinuxSyscall) bool {
		return slices.Contains(s.Names, "clone3") && s.Action == specs.ActErrno && s.ErrnoRet != nil && *s.ErrnoRet == 38
	}) {
		t.Error("clone3 does not give ENOSYS")
	}
	if arm := DefaultFilter("arm64", nil); allowed(arm, "arch_prctl") {
		t.Error("arch_prctl is allowed on arm64, which has none")
	}
}

// The profile's rules with a minimum kernel are taken without asking for the
// kernel's version, which is right as long as all supported kernels have it.
func TestProfileAsksForNoNewerKernel(t *testing.T) {
	for _, call := range seccomp.DefaultProfile().Syscalls {
		for _, cond := range []any{call.Includes, call.Excludes} {
			data, err := json.Marshal(cond)
			if err != nil {
				t.Fatal(err)
			}
			var v struct {
				MinKernel string `json:"minKernel"`
			}
			if err := json.Unmarshal(data, &v); err != nil {
				t.Fatal(err)
			}
			var major, minor int
			if v.MinKernel != "" {
				if _, err := fmt.Sscanf(v.MinKernel, "%d.%d", &major, &minor); err != nil {
					t.Fatal(err)
				}
			}
			if major > 5 || major == 5 && minor > 10 {
				t.Errorf("%v: asks for Linux %s, the floor is 5.10", call.Names, v.MinKernel)
			}
		}
	}
}

func TestCheckHostname(t *testing.T) {
	for name, ok := range map[string]bool{
		"web-1.example.com": true, strings.Repeat("a", 64): true,
		strings.Repeat("a", 65): false, "a b": false, "a\nb": false, "ä": false, "a/b": false,
	} {
		if err := checkHostname(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestErrnosKnowPOSIX(t *testing.T) {
	for name, want := range map[string]uint{"EPERM": 1, "ENOSYS": 38, "EAGAIN": 11, "ENOTSUP": 95, "EOPNOTSUPP": 95, "EHWPOISON": 133} {
		if got := errnos()[name]; got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}
