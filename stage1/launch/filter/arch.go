package filter

import (
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// arch is one architecture whose calls are known.
type arch struct {
	name  specs.Arch
	audit uint32 // AUDIT_ARCH_*
	wide  bool   // arguments have 64 bits
	x32   bool   // numbers from x32Bit on are those of another one
	table func() map[string]uint32
	// Calls that are also made through one of two others, whose first argument
	// says which.
	mux func() map[string]muxed
}

// x32Bit is set in the numbers of x86-64's second set of calls.
const x32Bit = 1 << 30

func parse(words string) func() map[string]uint32 {
	return sync.OnceValue(func() map[string]uint32 {
		table := make(map[string]uint32, 512)
		for rest := words; rest != ""; {
			var name, number string
			name, rest, _ = strings.Cut(rest, " ")
			number, rest, _ = strings.Cut(rest, " ")
			n, _ := strconv.ParseUint(number, 10, 32)
			table[name] = uint32(n)
		}
		return table
	})
}

// The tables are parsed when they are first asked for.
var (
	amd64 = parse(callsAmd64)
	i386  = parse(calls386)
	arm64 = parse(callsArm64)
	arm   = parse(callsArm)
)

func find(name specs.Arch) (arch, bool) {
	none := func() map[string]muxed { return nil }
	switch name {
	case specs.ArchX86_64:
		return arch{name, 0xc000003e, true, true, amd64, none}, true
	case specs.ArchX86:
		return arch{name, 0x40000003, false, false, i386, muxed386}, true
	case specs.ArchAARCH64:
		return arch{name, 0xc00000b7, true, false, arm64, none}, true
	case specs.ArchARM:
		return arch{name, 0x40000028, false, false, arm, none}, true
	default:
		return arch{}, false
	}
}

// native is the architecture of this program, which is always among a filter's.
func native() arch {
	names := map[string]specs.Arch{"amd64": specs.ArchX86_64, "386": specs.ArchX86, "arm64": specs.ArchAARCH64, "arm": specs.ArchARM}
	a, _ := find(names[runtime.GOARCH])
	return a
}

// muxed is a call that is number sub of another.
type muxed struct {
	call string
	sub  uint64
}

// muxed386 are the calls that socketcall(2) and ipc(2) make.
func muxed386() map[string]muxed {
	all := map[string]muxed{}
	for i, name := range strings.Fields("socket bind connect listen accept getsockname getpeername socketpair send recv " +
		"sendto recvfrom shutdown setsockopt getsockopt sendmsg recvmsg accept4 recvmmsg sendmmsg") {
		all[name] = muxed{"socketcall", uint64(i + 1)}
	}
	for name, n := range map[string]uint64{
		"semop": 1, "semget": 2, "semctl": 3, "semtimedop": 4, "msgsnd": 11, "msgrcv": 12, "msgget": 13, "msgctl": 14,
		"shmat": 21, "shmdt": 22, "shmget": 23, "shmctl": 24,
	} {
		all[name] = muxed{"ipc", n}
	}
	return all
}

// KnowsCall says whether some architecture has a system call of the name, so
// that a filter can have a rule for it.
func KnowsCall(name string) bool {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || strings.Trim(name, "0123456789") == "" {
		return false
	}
	for _, words := range []string{callsAmd64, calls386, callsArm64, callsArm, callsElsewhere} {
		if strings.HasPrefix(words, name+" ") || strings.Contains(words, " "+name+" ") {
			return true
		}
	}
	_, ok := muxed386()[name]
	return ok
}

// rules are what the architecture's calls get, by number, and the highest
// number that the filter names.
func (a arch) rules(f *specs.LinuxSeccomp, def uint32) (map[uint32][]rule, uint32, error) {
	table, mux := a.table(), a.mux()
	all := map[uint32][]rule{}
	highest := uint32(0)
	for _, call := range f.Syscalls {
		act, err := action(call.Action, call.ErrnoRet)
		if err != nil {
			return nil, 0, err
		}
		list, err := conditions(call, act)
		if err != nil {
			return nil, 0, err
		}
		for _, name := range call.Names {
			n, ok := table[name]
			if ok {
				highest = max(highest, n)
			}
			if act == def {
				continue // redundant
			}
			if ok {
				all[n] = add(all[n], list)
			}
			// What the call's own arguments are can't be seen through the other.
			if m, ok := mux[name]; ok && len(call.Args) == 0 {
				n := table[m.call]
				all[n] = add(all[n], []rule{{act, []condition{{arg: 0, op: specs.OpEqualTo, value: m.sub}}}})
			}
		}
	}
	return all, highest, nil
}

// add keeps one rule without conditions, which leaves no others anything.
func add(have, more []rule) []rule {
	if len(have) == 1 && len(have[0].conditions) == 0 {
		return have
	}
	if len(more) == 1 && len(more[0].conditions) == 0 {
		return more
	}
	return append(have, more...)
}
