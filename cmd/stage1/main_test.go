package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/abi"
)

// call runs a command in this process.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	out, err := redirected(t, &os.Stdout), redirected(t, &os.Stderr)
	code = dispatch(t.Context(), args)
	return code, out(), err()
}

// redirected puts a file in the stream's place until the function is called,
// which returns what was written.
func redirected(t *testing.T, stream **os.File) func() string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "stream")
	if err != nil {
		t.Fatal(err)
	}
	saved := *stream
	*stream = f
	return func() string {
		*stream = saved
		var buf bytes.Buffer
		if _, err := io.Copy(&buf, io.NewSectionReader(f, 0, 1<<20)); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		return buf.String()
	}
}

func TestVersion(t *testing.T) {
	code, stdout, stderr := call(t, abi.CmdVersion)
	var v abi.Version
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || code != 0 || stderr != "" {
		t.Fatalf("code %d, %q, %q, %v", code, stdout, stderr, err)
	}
	if v.Interface != abi.InterfaceVersion || len(v.Features) == 0 || v.Features[0] != abi.FeatureDiesWithSupervisor {
		t.Errorf("%+v", v)
	}
}

func TestErrors(t *testing.T) {
	pod := []string{"--uuid=u", "--data=/nosuch", "--pod-dir=/nosuch/u", "--store-id=s"}
	with := func(name string, more ...string) []string { return append(append([]string{name}, pod...), more...) }
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "stage1: no command\n"},
		{[]string{"dance"}, "stage1: command \"dance\": unknown\n"},
		{[]string{abi.CmdRun}, "stage1: run: --uuid"},
		{with(abi.CmdRun, "--lock-fd=9999"), "run: inherited lock: descriptor 9999: bad file descriptor\n"},
		{with(abi.CmdEnter, "--app=a"), "stage1: enter: no command\n"},
		{with(abi.CmdEnter, "--app=a", "--", "sh"), "enter: open /nosuch/u/apps: no such file or directory\n"},
		{with(abi.CmdStop), "stop: pod: not running\n"},
	} {
		code, stdout, stderr := call(t, c.args...)
		if code != codeError || stdout != "" || !strings.HasPrefix(stderr, c.want) {
			t.Errorf("%q: code %d, stdout %q, stderr %q; want %q", c.args, code, stdout, stderr, c.want)
		}
	}
}
