package plan

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// lifecycle are the calls that a launcher needs between the moment the filter
// is on and the program's own first instruction: without no-new-privileges it
// must come before the capabilities are dropped, the ids set and the working
// directory entered. And those without which no program ends. A retain-set is
// joined with them, as the specification allows.
var lifecycle = []string{
	"brk", "capget", "capset", "chdir", "clone", "close", "close_range", "dup3", "epoll_create1", "epoll_ctl",
	"epoll_pwait", "eventfd2", "execve", "exit", "exit_group", "faccessat", "faccessat2", "fchdir", "fchown",
	"fcntl", "fstat", "fstatfs", "futex", "getcwd", "getdents64", "getegid", "geteuid", "getgid", "getpid",
	"getppid", "gettid", "getuid", "lseek", "madvise", "mmap", "mprotect", "munmap", "nanosleep", "newfstatat",
	"openat", "openat2", "prctl", "prlimit64", "pread64", "read", "readlinkat", "restart_syscall",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sched_getaffinity", "sched_yield", "setgid", "setgroups",
	"setresgid", "setresuid", "setuid", "sigaltstack", "sigreturn", "statx", "tgkill", "tkill", "umask", "write",
}

// The wildcards that mean this executor's own filter, and no filter.
var (
	wildDefault = []string{"@rkt/default-whitelist", "@docker/default-whitelist"}
	wildAll     = "@appc.io/all"   // in a retain-set: no filter
	wildEmpty   = "@appc.io/empty" // in a remove-set: the executor's own filter
)

// filter chooses the app's system call filter.
func filter(app *App, in Input, found map[string]isolator) error {
	retain, isRetain := found[isoSecRetain]
	remove, isRemove := found[isoSecRemove]
	switch {
	case isRetain && isRemove:
		return errs.Newf(errs.Usage, "isolators %s and %s: only one of them may be given", isoSecRetain, isoSecRemove)
	case in.Options.InsecureSeccmp:
		app.Notes = append(app.Notes, "changed: no system call filter")
		return nil
	case isRetain:
		return retainFilter(app, in.Host, retain)
	case isRemove:
		return removeFilter(app, in.Host, remove)
	}
	app.Seccomp = DefaultFilter(in.Host.Arch, app.Capabilities)
	return nil
}

// knownCalls leaves out calls that no architecture has: a filter can't have a
// rule for them, and whoever mistyped one believes that it has.
func knownCalls(app *App, host Host, name string, iso isolator, names []string) ([]string, error) {
	if host.KnowsCall == nil { // then there are no filters: the launcher says so
		return names, nil
	}
	return known(app, name, iso, "system call", names, host.KnowsCall)
}

func retainFilter(app *App, host Host, iso isolator) error {
	arch := host.Arch
	names, action, errno, err := callSet(isoSecRetain, iso.value)
	if err != nil {
		return err
	}
	plain, wild := split(names)
	if plain, err = knownCalls(app, host, isoSecRetain, iso, plain); err != nil {
		return err
	}
	for _, w := range wild {
		switch {
		case w == wildAll: // it masks the rest
			app.Notes = append(app.Notes, "changed: no system call filter, as "+isoSecRetain+" asks")
			return nil
		case !slices.Contains(wildDefault, w):
			return errs.Newf(errs.Unsupported, "isolator %s: %s: unknown", isoSecRetain, w)
		}
	}
	f := &specs.LinuxSeccomp{DefaultAction: action, DefaultErrnoRet: errno, Architectures: architectures(arch)}
	if len(wild) > 0 {
		f.Syscalls = DefaultFilter(arch, app.Capabilities).Syscalls
	}
	allow := slices.Concat(plain, lifecycle)
	slices.Sort(allow)
	f.Syscalls = append(f.Syscalls, specs.LinuxSyscall{Names: slices.Compact(allow), Action: specs.ActAllow})
	app.Seccomp = f
	return nil
}

func removeFilter(app *App, host Host, iso isolator) error {
	arch := host.Arch
	names, action, errno, err := callSet(isoSecRemove, iso.value)
	if err != nil {
		return err
	}
	plain, wild := split(names)
	if plain, err = knownCalls(app, host, isoSecRemove, iso, plain); err != nil {
		return err
	}
	for _, w := range wild {
		switch w {
		case wildEmpty: // it masks the rest
			app.Seccomp = DefaultFilter(arch, app.Capabilities)
			return nil
		default:
			return errs.Newf(errs.Unsupported, "isolator %s: %s: unknown", isoSecRemove, w)
		}
	}
	if len(plain) == 0 {
		// Nothing that it names is there to be refused. A filter that lets
		// everything pass is the last thing it asked for.
		app.Seccomp = DefaultFilter(arch, app.Capabilities)
		return nil
	}
	slices.Sort(plain)
	app.Seccomp = &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow, Architectures: architectures(arch),
		Syscalls: []specs.LinuxSyscall{{Names: slices.Compact(plain), Action: action, ErrnoRet: errno}},
	}
	return nil
}

// callSet reads {"set": [...], "errno": "E..."}. Without an errno the process
// gets SIGSYS, which the specification wants.
func callSet(name string, value json.RawMessage) ([]string, specs.LinuxSeccompAction, *uint, error) {
	var v struct {
		Set   []string `json:"set"`
		Errno string   `json:"errno"`
	}
	if err := decode(name, value, &v); err != nil {
		return nil, "", nil, err
	}
	if len(v.Set) == 0 {
		return nil, "", nil, errs.Newf(errs.Usage, "isolator %s: empty set", name)
	}
	if v.Errno == "" {
		return v.Set, specs.ActKillProcess, nil, nil
	}
	n, ok := errnos()[v.Errno]
	if !ok {
		return nil, "", nil, errs.Newf(errs.Usage, "isolator %s: errno %q: unknown", name, v.Errno)
	}
	return v.Set, specs.ActErrno, &n, nil
}

func split(names []string) (plain, wild []string) {
	for _, n := range names {
		if strings.HasPrefix(n, "@") {
			wild = append(wild, n)
		} else {
			plain = append(plain, n)
		}
	}
	return plain, wild
}

// errnos are the names that C knows; some numbers have two.
func errnos() map[string]uint {
	m := map[string]uint{
		"ENOTSUP": uint(unix.ENOTSUP), "EOPNOTSUPP": uint(unix.EOPNOTSUPP), "EWOULDBLOCK": uint(unix.EWOULDBLOCK),
		"EDEADLOCK": uint(unix.EDEADLOCK),
	}
	for n := unix.Errno(1); n < 134; n++ {
		if name := unix.ErrnoName(n); name != "" {
			m[name] = uint(n)
		}
	}
	return m
}

// DefaultFilter is the maintained profile of the Moby project, resolved for
// the architecture and the capabilities. What it refuses by name gets EPERM;
// a launcher must answer ENOSYS to calls newer than any that the profile
// names, so that C libraries fall back to what they did before.
func DefaultFilter(arch string, caps []string) *specs.LinuxSeccomp {
	profile := seccomp.DefaultProfile()
	f := profile.LinuxSeccomp
	f.Architectures = architectures(arch)
	native := nativeName(arch)
	for _, call := range profile.Syscalls {
		if in := call.Includes; in != nil && (len(in.Arches) > 0 && !slices.Contains(in.Arches, native) || !containsAll(caps, in.Caps)) {
			continue
		}
		if ex := call.Excludes; ex != nil && (slices.Contains(ex.Arches, native) || containsAny(caps, ex.Caps)) {
			continue
		}
		// Rules with MinKernel stay: the newest that one asks for is 4.8,
		// below the oldest kernel that rkt supports.
		f.Syscalls = append(f.Syscalls, call.LinuxSyscall)
	}
	return &f
}

func architectures(arch string) []specs.Arch {
	switch arch {
	case "amd64":
		// Without x32, which Debian's kernels refuse by default and nobody builds
		// for: its rules would cost a fifth of a start. Its calls end the program
		// with SIGSYS, as those of any other architecture do.
		return []specs.Arch{specs.ArchX86_64, specs.ArchX86}
	case "arm64":
		return []specs.Arch{specs.ArchAARCH64, specs.ArchARM}
	case "riscv64":
		return []specs.Arch{specs.ArchRISCV64}
	case "ppc64le":
		return []specs.Arch{specs.ArchPPC64LE}
	case "s390x":
		return []specs.Arch{specs.ArchS390X, specs.ArchS390}
	}
	return nil // the native one
}

// nativeName is what the profile calls an architecture of Go's.
func nativeName(arch string) string {
	if arch == "386" {
		return "x86"
	}
	return arch
}

func containsAll(set, want []string) bool {
	for _, w := range want {
		if !slices.Contains(set, w) {
			return false
		}
	}
	return true
}

func containsAny(set, some []string) bool {
	return slices.ContainsFunc(some, func(s string) bool { return slices.Contains(set, s) })
}
