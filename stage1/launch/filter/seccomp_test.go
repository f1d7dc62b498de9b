//go:build seccomp

package filter

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	lib "github.com/seccomp/libseccomp-golang"
)

// run interprets a program, as the kernel does.
func run(t *testing.T, program []Instruction, data [64]byte) uint32 {
	t.Helper()
	var a uint32
	for pc := 0; pc < len(program); pc++ {
		i := program[pc]
		taken := false
		switch i.Code {
		case opLoad:
			a = binary.LittleEndian.Uint32(data[i.K:])
			continue
		case opAnd:
			a &= i.K
			continue
		case opReturn:
			return i.K
		case opJump:
			pc += int(i.K)
			continue
		case jeq:
			taken = a == i.K
		case jgt:
			taken = a > i.K
		case jge:
			taken = a >= i.K
		case 0x45: // jset
			taken = a&i.K != 0
		default:
			t.Fatalf("instruction %#x", i.Code)
		}
		if taken {
			pc += int(i.Jt)
		} else {
			pc += int(i.Jf)
		}
	}
	t.Fatal("past the end")
	return 0
}

// oracle has libseccomp make the same filter.
func oracle(t *testing.T, f *specs.LinuxSeccomp) []Instruction {
	t.Helper()
	convert := func(a specs.LinuxSeccompAction, errno *uint) lib.ScmpAction {
		n, err := action(a, errno)
		if err != nil {
			t.Fatal(err)
		}
		base := map[uint32]lib.ScmpAction{
			retAllow: lib.ActAllow, retKillProcess: lib.ActKillProcess, retKillThread: lib.ActKillThread, retErrno: lib.ActErrno,
			retTrap: lib.ActTrap, retLog: lib.ActLog, retTrace: lib.ActTrace,
		}[n&0xffff0000]
		if n&0xffff != 0 {
			return base.SetReturnCode(int16(n & 0xffff))
		}
		return base
	}
	def := convert(f.DefaultAction, f.DefaultErrnoRet)
	filter, err := lib.NewFilter(def)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range f.Architectures {
		arch := map[specs.Arch]lib.ScmpArch{
			specs.ArchX86_64: lib.ArchAMD64, specs.ArchX86: lib.ArchX86, specs.ArchAARCH64: lib.ArchARM64, specs.ArchARM: lib.ArchARM,
		}[a]
		if err := filter.AddArch(arch); err != nil {
			t.Fatal(err)
		}
	}
	for _, call := range f.Syscalls {
		act := convert(call.Action, call.ErrnoRet)
		for _, name := range call.Names {
			n, err := lib.GetSyscallFromName(name)
			if err != nil || act == def {
				continue
			}
			if len(call.Args) == 0 {
				if err := filter.AddRule(n, act); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				continue
			}
			rules, err := conditions(call, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rules {
				var all []lib.ScmpCondition
				for _, c := range r.conditions {
					op := map[specs.LinuxSeccompOperator]lib.ScmpCompareOp{
						specs.OpEqualTo: lib.CompareEqual, specs.OpNotEqual: lib.CompareNotEqual, specs.OpGreaterThan: lib.CompareGreater,
						specs.OpGreaterEqual: lib.CompareGreaterEqual, specs.OpLessThan: lib.CompareLess, specs.OpLessEqual: lib.CompareLessOrEqual,
						specs.OpMaskedEqual: lib.CompareMaskedEqual,
					}[c.op]
					cond, err := lib.MakeCondition(c.arg, op, c.value, c.two)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, cond)
				}
				if err := filter.AddRuleConditional(n, act, all); err != nil {
					t.Logf("%s: libseccomp leaves out %v: %v", name, call.Args, err)
				}
			}
		}
	}
	out, err := os.CreateTemp(t.TempDir(), "bpf")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := filter.ExportBPF(out); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	var program []Instruction
	for ; len(data) >= 8; data = data[8:] {
		program = append(program, Instruction{
			binary.LittleEndian.Uint16(data), data[2], data[3], binary.LittleEndian.Uint32(data[4:]),
		})
	}
	return program
}

// newest is the highest number that the filter names, by libseccomp's table.
func newest(f *specs.LinuxSeccomp, arch lib.ScmpArch) (uint32, map[uint32]bool) {
	most, all := uint32(0), map[uint32]bool{}
	for _, call := range f.Syscalls {
		for _, name := range call.Names {
			n, err := lib.GetSyscallFromNameByArch(name, arch)
			if err == nil && n >= 0 {
				most = max(most, uint32(n))
				all[uint32(n)] = true
			}
		}
	}
	return most, all
}

func samples(f *specs.LinuxSeccomp) []uint64 {
	set := map[uint64]bool{0: true, 1: true, 2: true, 3: true, 20: true, 21: true, ^uint64(0): true, 1 << 32: true, 1<<32 - 1: true, 0xf00: true}
	for _, call := range f.Syscalls {
		for _, a := range call.Args {
			for _, v := range []uint64{a.Value, a.ValueTwo} {
				for _, w := range []uint64{v, v + 1, v - 1, v | 1<<32, v | 0x7e020000, ^v} {
					set[w] = true
				}
			}
		}
	}
	var all []uint64
	for v := range set {
		all = append(all, v)
	}
	return all
}

func compare(t *testing.T, f *specs.LinuxSeccomp, audits map[uint32]lib.ScmpArch) {
	t.Helper()
	ours, _, err := Compile(f)
	if err != nil {
		t.Fatal(err)
	}
	theirs := oracle(t, f)
	t.Logf("%d instructions, libseccomp's %d", len(ours), len(theirs))
	values := samples(f)
	kill := func(n uint32) uint32 {
		// Of another architecture the whole process ends here, where libseccomp
		// would leave a program without one of its threads.
		if n == retKillThread {
			return retKillProcess
		}
		return n
	}
	differ := 0
	def, err := action(f.DefaultAction, f.DefaultErrnoRet)
	if err != nil {
		t.Fatal(err)
	}
	for audit, arch := range audits {
		most, theirNames := newest(f, arch)
		known, byArgument, highest := numbersOf(f, audit)
		numbers := []uint32{0xf0000, 0xf0001, 0xf0002, 0xf0003, 0xf0004, 0xf0005, 0xf0006, x32Bit, x32Bit + 1, x32Bit + 511, 1 << 31, ^uint32(0)}
		for n := range uint32(600) {
			numbers = append(numbers, n)
		}
		for _, n := range numbers {
			if known[n] && !theirNames[n] || n > most && n < highest {
				continue // this package's tables are newer
			}
			values := values
			if !byArgument[n] {
				values = values[:3]
			}
			for _, v := range values {
				for arg := range 6 {
					var data [64]byte
					binary.LittleEndian.PutUint32(data[:], n)
					binary.LittleEndian.PutUint32(data[4:], audit)
					if audit&0x80000000 == 0 {
						v &= 1<<32 - 1 // the kernel has no more of them
					}
					binary.LittleEndian.PutUint64(data[offArgs+8*arg:], v)
					want, got := kill(run(t, theirs, data)), kill(run(t, ours, data))
					if arch != 0 && n > most && want == def && (audit != 0xc000003e || n < x32Bit) {
						want = newer(f, def) // libcontainer puts that in front
					}
					if want != got {
						if differ++; differ < 40 {
							t.Errorf("arch %#x call %d arg %d=%#x: %#x, libseccomp %#x", audit, n, arg, v, got, want)
						}
					}
				}
			}
		}
	}
}

// numbersOf are the numbers that a filter names, and those of which it looks
// at arguments.
func numbersOf(f *specs.LinuxSeccomp, audit uint32) (known, byArgument map[uint32]bool, highest uint32) {
	known, byArgument = map[uint32]bool{}, map[uint32]bool{102: true, 117: true} // socketcall, ipc
	for _, name := range []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchAARCH64, specs.ArchARM} {
		a, _ := find(name)
		if a.audit != audit {
			continue
		}
		for _, call := range f.Syscalls {
			for _, n := range call.Names {
				if number, ok := a.table()[n]; ok {
					known[number] = true
					highest = max(highest, number)
					byArgument[number] = byArgument[number] || len(call.Args) > 0
				}
			}
		}
	}
	return known, byArgument, highest
}

func profile(caps ...string) *specs.LinuxSeccomp {
	p := seccomp.DefaultProfile()
	f := p.LinuxSeccomp
	f.Architectures = []specs.Arch{specs.ArchX86_64, specs.ArchX86}
	for _, call := range p.Syscalls {
		if in := call.Includes; in != nil && (len(in.Arches) > 0 && fmt.Sprint(in.Arches) != "[amd64 x32]" || len(in.Caps) > len(caps)) {
			continue
		}
		if ex := call.Excludes; ex != nil && len(ex.Caps) > 0 && len(caps) > 0 {
			continue
		}
		f.Syscalls = append(f.Syscalls, call.LinuxSyscall)
	}
	return &f
}

// TestAgainstLibseccomp tries all numbers, and values of arguments about those
// that a filter has, on both programs.
func TestAgainstLibseccomp(t *testing.T) {
	x86 := map[uint32]lib.ScmpArch{0xc000003e: lib.ArchAMD64, 0x40000003: lib.ArchX86, 0xc00000b7: 0}
	arms := map[uint32]lib.ScmpArch{0xc000003e: lib.ArchAMD64, 0xc00000b7: lib.ArchARM64, 0x40000028: lib.ArchARM, 0x40000003: 0}
	alone := map[uint32]lib.ScmpArch{0xc000003e: lib.ArchAMD64, 0x40000003: 0}
	edom := uint(33)
	ops := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: &edom, Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86}}
	for i, op := range []specs.LinuxSeccompOperator{
		specs.OpEqualTo, specs.OpNotEqual, specs.OpGreaterThan, specs.OpGreaterEqual, specs.OpLessThan, specs.OpLessEqual, specs.OpMaskedEqual,
	} {
		name := []string{"read", "write", "ioctl", "lseek", "prctl", "personality", "clone"}[i]
		arg := specs.LinuxSeccompArg{Index: uint(i % 3), Value: 1<<33 | 5, ValueTwo: 1<<33 | 4, Op: op}
		if i%2 == 1 {
			arg.Value, arg.ValueTwo = 7, 3
		}
		ops.Syscalls = append(ops.Syscalls, specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{arg}})
	}
	deny := &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow, Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86},
		Syscalls: []specs.LinuxSyscall{{Names: []string{"chown", "fchownat", "socket", "semop"}, Action: specs.ActErrno, ErrnoRet: &edom}},
	}
	retain := &specs.LinuxSeccomp{
		DefaultAction: specs.ActKillProcess, Architectures: []specs.Arch{specs.ArchX86_64},
		Syscalls: []specs.LinuxSyscall{{Names: []string{"read", "write", "exit_group"}, Action: specs.ActAllow}},
	}
	arm := profile()
	arm.Architectures = []specs.Arch{specs.ArchAARCH64, specs.ArchARM}
	for name, f := range map[string]*specs.LinuxSeccomp{
		"arm": arm, "default": profile(), "admin": profile("CAP_SYS_ADMIN"), "operators": ops, "deny": deny, "retain": retain,
	} {
		audits := x86
		if name == "arm" {
			audits = arms
		}
		if len(f.Architectures) == 1 {
			audits = alone
		}
		t.Run(name, func(t *testing.T) { compare(t, f, audits) })
	}
}
