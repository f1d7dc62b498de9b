package abi

import (
	"errors"
	"slices"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
)

func TestReportRoundTrip(t *testing.T) {
	plain := errors.New("supervisor: process 7: does not answer")
	for _, err := range []error{
		plain,
		errs.WithHint(plain, "try 100%% of it"),
		errs.WithHint(errs.WithHint(plain, "inner"), "outer"),
		errors.New("one\ntwo"),
	} {
		got := ParseReport(CmdStop, Report(CmdStop, err))
		if got == nil || got.Error() != err.Error() || !slices.Equal(errs.Hints(got), errs.Hints(err)) {
			t.Errorf("%v %q: came back as %v %q", err, errs.Hints(err), got, errs.Hints(got))
		}
	}
	if text := Report(CmdStop, errs.WithHint(plain, "do")); text != "stop: supervisor: process 7: does not answer\nstop: hint: do\n" {
		t.Errorf("text %q", text)
	}
	if err := ParseReport(CmdStop, ""); err != nil {
		t.Errorf("nothing: %v", err)
	}
	// What it did not write itself, such as a crash, is told as it is.
	if err := ParseReport(CmdStop, "panic: x\n"); err == nil || err.Error() != "panic: x" {
		t.Errorf("a foreign text: %v", err)
	}
}
