package filter

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/plan"
)

func TestKnowsCall(t *testing.T) {
	for call, want := range map[string]bool{
		"read": true, "mount": true, "kexec_load": true,
		// Of one architecture only.
		"arch_prctl": true, "vm86": true, "arm_fadvise64_64": true, "s390_pci_mmio_read": true, "riscv_flush_icache": true, "spu_run": true,
		"opne": false, "READ": false, "read ": false, "": false, "@default": false, "-1": false, "0": false, "read 0": false,
	} {
		if KnowsCall(call) != want {
			t.Errorf("%q: known %v", call, !want)
		}
	}
}

// TestRefused are filters that would not do what they say.
func TestRefused(t *testing.T) {
	arg := func(a specs.LinuxSeccompArg) *specs.LinuxSeccomp {
		return &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{
			{Names: []string{"read"}, Action: specs.ActErrno, Args: []specs.LinuxSeccompArg{a}},
		}}
	}
	for name, f := range map[string]*specs.LinuxSeccomp{
		"default action": {DefaultAction: "SCMP_ACT_NOSUCH"},
		"action":         {DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{{Names: []string{"read"}, Action: specs.ActNotify}}},
		"architecture":   {DefaultAction: specs.ActAllow, Architectures: []specs.Arch{specs.ArchRISCV64}},
		"flag":           {DefaultAction: specs.ActAllow, Flags: []specs.LinuxSeccompFlag{"SECCOMP_FILTER_FLAG_NOSUCH"}},
		"argument":       arg(specs.LinuxSeccompArg{Index: 6, Op: specs.OpEqualTo}),
		"operator":       arg(specs.LinuxSeccompArg{Op: "SCMP_CMP_NOSUCH"}),
	} {
		if _, _, err := Compile(f); !errs.Is(err, errs.Unsupported) && !errs.Is(err, errs.Usage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func BenchmarkDefault(b *testing.B) {
	f := plan.DefaultFilter("amd64", nil)
	for b.Loop() {
		if _, _, err := Compile(f); err != nil {
			b.Fatal(err)
		}
	}
}
