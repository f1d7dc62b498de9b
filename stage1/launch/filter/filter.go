// Package filter compiles system call filters of the runtime specification to
// the programs that seccomp(2) takes. What a call gets is what libseccomp gives
// it: its test compares the two.
package filter

//go:generate go run ./gen

import (
	"math"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// What a filter answers, seccomp(2).
const (
	retKillProcess = 0x80000000
	retKillThread  = 0x00000000
	retTrap        = 0x00030000
	retErrno       = 0x00050000
	retTrace       = 0x7ff00000
	retLog         = 0x7ffc0000
	retAllow       = 0x7fff0000
)

// Flags of seccomp(2).
const (
	flagLog       = 1 << 1
	flagSpecAllow = 1 << 2
)

// Instruction is one instruction of a classic BPF program, struct sock_filter.
type Instruction struct {
	Code   uint16
	Jt, Jf uint8
	K      uint32
}

// rule is what one call gets, if all conditions hold.
type rule struct {
	action     uint32
	conditions []condition
}

type condition struct {
	arg        uint
	op         specs.LinuxSeccompOperator
	value, two uint64
}

// Compile returns the program and the flags to load it with.
func Compile(f *specs.LinuxSeccomp) (program []Instruction, flags uint, err error) {
	defAction, err := action(f.DefaultAction, f.DefaultErrnoRet)
	if err != nil {
		return nil, 0, err
	}
	if flags, err = flagsOf(f.Flags); err != nil {
		return nil, 0, err
	}
	wanted := []arch{native()}
	for _, a := range f.Architectures {
		one, ok := find(a)
		if !ok {
			return nil, 0, errs.Newf(errs.Unsupported, "architecture %s: no table of its calls", a)
		}
		if one.audit != wanted[0].audit {
			wanted = append(wanted, one)
		}
	}
	b := &builder{}
	next := b.ret(retKillProcess) // of another architecture
	for _, a := range slices.Backward(wanted) {
		rules, highest, err := a.rules(f, defAction)
		if err != nil {
			return nil, 0, err
		}
		begin := b.arch(a, rules, highest, defAction, newer(f, defAction))
		next = b.jump(jeq, a.audit, begin, next)
	}
	b.load(offArch)
	if len(b.reversed) > math.MaxUint16 || len(b.reversed) > 4096 {
		return nil, 0, errs.Newf(errs.Unsupported, "too long: %d instructions, of which the kernel takes 4096", len(b.reversed))
	}
	return b.program(), flags, nil
}

// newer is what calls get that are newer than all that the filter names: C
// libraries take ENOSYS, and nothing else, for a sign to do as they did before.
func newer(f *specs.LinuxSeccomp, def uint32) uint32 {
	const enosys = retErrno | uint32(unix.ENOSYS)
	if f.DefaultErrnoRet != nil && *f.DefaultErrnoRet == uint(unix.ENOSYS) {
		return def
	}
	switch def & 0x7fff0000 {
	case retAllow, retLog, retTrace:
		return def
	}
	return enosys
}

func action(a specs.LinuxSeccompAction, errno *uint) (uint32, error) {
	data := func(base uint32) uint32 {
		if errno == nil {
			return base | uint32(unix.EPERM)
		}
		return base | uint32(*errno&0xffff)
	}
	switch a {
	case specs.ActAllow:
		return retAllow, nil
	case specs.ActErrno:
		return data(retErrno), nil
	case specs.ActKill, specs.ActKillThread:
		return retKillThread, nil
	case specs.ActKillProcess:
		return retKillProcess, nil
	case specs.ActTrap:
		return retTrap, nil
	case specs.ActTrace:
		return data(retTrace), nil
	case specs.ActLog:
		return retLog, nil
	default: // also to notify another process: there is none
		return 0, errs.Newf(errs.Unsupported, "action %q: unknown", a)
	}
}

func flagsOf(list []specs.LinuxSeccompFlag) (uint, error) {
	if list == nil {
		// The mitigation of Speculative Store Bypass, which a filter would turn
		// on before Linux 5.16, slows everything and protects nothing here.
		return flagSpecAllow, nil
	}
	var flags uint
	for _, f := range list {
		switch f {
		case "SECCOMP_FILTER_FLAG_TSYNC": // there is one thread
		case specs.LinuxSeccompFlagLog:
			flags |= flagLog
		case specs.LinuxSeccompFlagSpecAllow:
			flags |= flagSpecAllow
		default:
			return 0, errs.Newf(errs.Unsupported, "flag %s: unknown", f)
		}
	}
	return flags, nil
}

// conditions turns the arguments of a call of the specification into rules. If
// two are about the same argument each is a rule of its own.
func conditions(call specs.LinuxSyscall, action uint32) ([]rule, error) {
	one := rule{action: action}
	var each []rule
	twice := false
	var seen [6]bool
	for _, a := range call.Args {
		if a.Index >= 6 {
			return nil, errs.Newf(errs.Usage, "%s: argument %d: a call has six", call.Names, a.Index)
		}
		switch a.Op {
		case specs.OpEqualTo, specs.OpNotEqual, specs.OpGreaterThan, specs.OpGreaterEqual, specs.OpLessThan, specs.OpLessEqual, specs.OpMaskedEqual:
		default:
			return nil, errs.Newf(errs.Unsupported, "%s: operator %q: unknown", call.Names, a.Op)
		}
		twice = twice || seen[a.Index]
		seen[a.Index] = true
		c := condition{arg: a.Index, op: a.Op, value: a.Value, two: a.ValueTwo}
		one.conditions = append(one.conditions, c)
		each = append(each, rule{action: action, conditions: []condition{c}})
	}
	if twice {
		return each, nil
	}
	return []rule{one}, nil
}
