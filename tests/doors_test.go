package tests

import (
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// defaultCaps is what upstream rkt gives an app: AUDIT_WRITE, CHOWN,
// DAC_OVERRIDE, FSETID, FOWNER, KILL, MKNOD, NET_RAW, NET_BIND_SERVICE, SETUID,
// SETGID, SETPCAP, SETFCAP and SYS_CHROOT.
const defaultCaps = "00000000a80425fb"

// doors is what an app has, as far as an --insecure-options takes part of its
// confinement away.
type doors struct {
	caps, filter   bool // all capabilities; no filter
	paths, devices bool // /proc/sys can be written to; other devices can be had
}

func (h *host) doorsOf(flags ...string) (doors, string) {
	h.t.Helper()
	args := slices.Concat([]string{"run", "--net=none"}, flags, []string{image("escape.aci"), "--exec=/escape", "--", "whoami", "write", "devices"})
	all := parseTries(h.t, h.rkt(args...))
	d := doors{filter: all.said("Seccomp") == "0", paths: all.did(h.t, "write /proc/sys/kernel/core_pattern")}
	others := 0
	for name := range all {
		if strings.HasPrefix(name, "devices ") && name != "devices null" && all.did(h.t, name) {
			others++
		}
	}
	d.devices = others > 0
	d.caps = all.said("CapBnd") != defaultCaps
	for _, set := range []string{"CapPrm", "CapEff"} {
		if all.said(set) != all.said("CapBnd") {
			h.t.Errorf("%v: %s is %s of %s", flags, set, all.said(set), all.said("CapBnd"))
		}
	}
	for _, set := range []string{"CapInh", "CapAmb"} {
		if all.said(set) != "0000000000000000" {
			h.t.Errorf("%v: %s is %s", flags, set, all.said(set))
		}
	}
	return d, all["#"]
}

// TestDoors: each of --insecure-options takes away what it names and nothing
// else.
func TestDoors(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for option, want := range map[string]doors{
		"image":                            {},
		"image,ondisk":                     {},
		"image,http":                       {},
		"image,tls":                        {},
		"image,pubkey":                     {},
		"image,capabilities":               {caps: true},
		"image,seccomp":                    {filter: true},
		"image,paths":                      {paths: true, devices: true},
		"image,paths,seccomp":              {filter: true, paths: true, devices: true},
		"image,capabilities,paths,seccomp": {true, true, true, true},
		"all-run":                          {true, true, true, true},
		"all-fetch":                        {},
		"all":                              {true, true, true, true},
	} {
		flags := []string{"--insecure-options=" + option}
		if option == "all-run" {
			flags = []string{"--insecure-options=image,all-run"}
		}
		if got, said := h.doorsOf(flags...); got != want {
			t.Errorf("%s: %+v, want %+v\n%s", option, got, want, said)
		}
	}
}

// numbers are the calls of this architecture by name.
func numbers(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../stage1/launch/filter/zcalls.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(text), "const callsAmd64 =")
	if !ok {
		t.Fatal("no table of calls")
	}
	list, _, _ = strings.Cut(list, "\n\n")
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`([a-z_][a-z0-9_]*) ([0-9]+)`).FindAllStringSubmatch(list, -1) {
		all[m[1]] = m[2]
	}
	return all
}

// notTried are calls that end, stop or change the program that makes them, or
// disturb others, whatever their arguments.
var notTried = []string{
	"exit", "exit_group", "fork", "vfork", "clone", "rt_sigreturn", "pause", "sync", "uretprobe", "uprobe", "vhangup", "reboot", "restart_syscall", "set_tid_address",
}

// kernelRefuses are calls that the kernel itself answers with EPERM, whatever
// their arguments: of a session's leader, of one without CAP_SETGID, and of one
// with no more than CAP_SYS_ADMIN.
var kernelRefuses = []string{"setsid", "setgroups", "syslog"}

// profileAllows reads the profile: yes, no, or that it depends on arguments.
func profileAllows(caps []string) map[string]string {
	all := map[string]string{}
	has := func(c string) bool { return slices.Contains(caps, c) }
	for _, call := range seccomp.DefaultProfile().Syscalls {
		if in := call.Includes; in != nil && (len(in.Arches) > 0 && !slices.Contains(in.Arches, "amd64") || slices.ContainsFunc(in.Caps, func(c string) bool { return !has(c) })) {
			continue
		}
		if ex := call.Excludes; ex != nil && (slices.Contains(ex.Arches, "amd64") || slices.ContainsFunc(ex.Caps, has)) {
			continue
		}
		for _, name := range call.Names {
			switch {
			case call.Action != specs.ActAllow:
				if all[name] == "" {
					all[name] = "no"
				}
			case len(call.Args) > 0:
				if all[name] != "yes" {
					all[name] = "arguments"
				}
			default:
				all[name] = "yes"
			}
		}
	}
	return all
}

// TestProfile makes every system call that there is, with arguments of no use:
// what the profile lets pass comes back with what the kernel says of them, all
// else is refused. So it is with the default set and with each capability that
// lets more pass.
func TestProfile(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the table of calls is that of amd64")
	}
	t.Parallel()
	h := newHost(t)
	calls := numbers(t)
	var words []string
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if !slices.Contains(notTried, name) {
			words = append(words, name+"="+calls[name])
		}
	}
	if len(words) < 300 {
		t.Fatalf("only %d calls", len(words))
	}
	for _, more := range []string{
		"", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_SYSLOG", "CAP_SYS_TIME", "CAP_DAC_READ_SEARCH", "CAP_SYS_NICE", "CAP_SYS_PACCT", "CAP_BPF", "CAP_PERFMON", "CAP_SYS_CHROOT", "CAP_WAKE_ALARM",
	} {
		caps := []string{"CAP_CHOWN"}
		flags := []string{"--no-new-privileges"} // landlock wants it, or CAP_SYS_ADMIN
		if more != "" {
			caps = append(caps, more)
			flags = append(flags, "--caps-retain="+strings.Join(caps, ","))
		} else {
			caps = []string{"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_KILL", "CAP_MKNOD", "CAP_NET_RAW", "CAP_NET_BIND_SERVICE", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETFCAP", "CAP_SYS_CHROOT"}
		}
		got := h.escape(flags, "calls:"+strings.Join(words, ":"))
		allowed := profileAllows(caps)
		passed, refused := 0, 0
		for _, w := range words {
			name, _, _ := strings.Cut(w, "=")
			errno := got.said(name)
			switch allows := allowed[name]; {
			case errno == "":
				t.Errorf("%s: %s was not tried", more, name)
			case allows == "arguments":
			case allows == "yes":
				passed++
				if errno == "1" && !slices.Contains(kernelRefuses, name) {
					t.Errorf("%s: %s is refused, the profile allows it", more, name)
				}
			default:
				refused++
				if errno != "1" && errno != "38" {
					t.Errorf("%s: %s came through (errno %s), the profile refuses it", more, name, errno)
				}
			}
		}
		if passed < 200 || refused < 20 {
			t.Errorf("%s: %d passed, %d were refused", more, passed, refused)
		}
	}
	// What no table has yet, and what is of another architecture.
	if got := h.escape(nil, "calls:new=999"); got.said("new") != "38" {
		t.Errorf("a call that is not known yet: %v", got)
	}
	res := h.rkt("run", "--insecure-options=image", "--net=none", image("escape.aci"), "--exec=/escape", "--", "calls:x32=1073741863")
	if res.code != 128+int(syscall.SIGSYS) {
		t.Errorf("a call of x32: %s", res)
	}
}
