package filter

import "testing"

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
