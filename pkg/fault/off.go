//go:build !fault

// Package fault names the steps that change the disk or the kernel, so that
// tests can kill the program, or make a step fail, at any of them. In release
// builds Step does nothing and RKT_FAULT is not read.
package fault

// Enabled says whether this build obeys RKT_FAULT.
const Enabled = false

// Step marks the point right before the named step. A non-nil error must be
// returned as if the step itself had failed.
func Step(string) error { return nil }
