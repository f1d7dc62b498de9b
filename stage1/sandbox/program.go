package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// The exit codes of a program that can't be executed, as shells have them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// maxInterpreters is how many scripts may interpret each other (the kernel's
// own limit).
const maxInterpreters = 5

// LookupProgram finds what argv[0] of the app will be, as execvp does it in
// the rootfs that Prepare made ready, and checks that it can be executed: that
// it is there, that the app's user may, that the format and architecture are
// this host's, that interpreters are there. What is wrong is a
// *launch.StartError with 127 or 126. The path is the one in the rootfs, ""
// if it lies where the launcher mounts something over it.
func (p *Pod) LookupProgram(app launch.App) (string, error) {
	if len(app.Argv) == 0 || app.Argv[0] == "" {
		return "", notFound("program %q: empty name", "")
	}
	r, err := openRoot(app.RootFS, app.IDs)
	if err != nil {
		return "", err
	}
	defer r.close()
	l := &lookup{root: r, app: app}
	name, err := l.find(app.Argv[0])
	if err != nil || name == "" {
		return "", err
	}
	return name, l.check(name, app.Argv[0], 0)
}

type lookup struct {
	root *root
	app  launch.App
}

func notFound(format string, args ...any) error {
	return &launch.StartError{ExitCode: exitNotFound, Err: fmt.Errorf(format, args...)}
}

func notExecutable(format string, args ...any) error {
	return &launch.StartError{ExitCode: exitNotExecutable, Err: fmt.Errorf(format, args...)}
}

// find walks the PATH. As in execvp, one that may not be executed is passed
// over, and remembered for the message if there is no other.
func (l *lookup) find(name string) (string, error) {
	if strings.Contains(name, "/") {
		return l.candidate(l.absolute(name), name)
	}
	var denied error
	for dir := range strings.SplitSeq(plan.Getenv(l.app.Env, "PATH"), ":") {
		full := l.absolute(path.Join(dir, name)) // an empty one is the working directory
		found, err := l.candidate(full, name)
		if err == nil {
			return found, nil
		}
		var start *launch.StartError
		if !errors.As(err, &start) {
			return "", err
		}
		if start.ExitCode == exitNotExecutable && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", notFound("program %q: not found in PATH", name)
}

// absolute does not clean the path: what ".." means depends on symlinks.
func (l *lookup) absolute(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return l.app.Cwd + "/" + name
}

// candidate says whether a path is a file that the app's user may execute. A
// path below a mount of the launcher's is not looked at: "" and no error.
func (l *lookup) candidate(full, asked string) (string, error) {
	if strings.Contains(full, "\x00") {
		return "", notFound("program %q: not a path", asked)
	}
	if insideStandard(path.Clean(full), l.app.Mounts) {
		return "", nil
	}
	st, err := l.root.stat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return "", notFound("program %q: not found", asked)
	case errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENAMETOOLONG):
		return "", notFound("program %q: %w", asked, errors.Unwrap(err))
	case err != nil:
		return "", err
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return "", notExecutable("program %q: is a folder", asked)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return "", notExecutable("program %q: not a regular file", asked)
	case !l.mayExecute(st):
		return "", notExecutable("program %q: user %d may not execute it (mode %04o, owner %d:%d)",
			asked, l.app.UID, st.Mode&0o7777, st.Uid, st.Gid)
	}
	return full, nil
}

// mayExecute is the kernel's rule: root with CAP_DAC_OVERRIDE needs any of
// the three bits, others the one that is for them.
func (l *lookup) mayExecute(st unix.Stat_t) bool {
	if l.app.UID == 0 && slices.Contains(l.app.Capabilities, "CAP_DAC_OVERRIDE") {
		return st.Mode&0o111 != 0
	}
	switch {
	case int(st.Uid) == l.app.UID:
		return st.Mode&0o100 != 0
	case int(st.Gid) == l.app.GID || slices.Contains(l.app.Gids, int(st.Gid)):
		return st.Mode&0o010 != 0
	}
	return st.Mode&0o001 != 0
}

// check reads the head of the file as the kernel will.
func (l *lookup) check(full, asked string, depth int) error {
	fd, err := l.root.open(full, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), full)
	defer f.Close()
	head := make([]byte, 256)
	n, err := f.ReadAt(head, 0)
	if n == 0 && err != nil {
		if n, err := f.Stat(); err == nil && n.Size() == 0 {
			return notExecutable("program %q: is empty", asked)
		}
		return err
	}
	head = head[:n]
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		return l.checkScript(head, asked, depth)
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		return l.checkELF(f, head, asked)
	case otherFormats():
		return nil
	}
	return notExecutable("program %q: unknown format, neither ELF nor a script with #!", asked)
}

func (l *lookup) checkScript(head []byte, asked string, depth int) error {
	line, _, _ := bytes.Cut(head[2:], []byte("\n"))
	line, _, _ = bytes.Cut(line, []byte{0})
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return notExecutable("program %q: its first line names no interpreter", asked)
	}
	if depth == maxInterpreters {
		return notExecutable("program %q: too many interpreters", asked)
	}
	return l.interpreter(words[0], asked, depth+1)
}

// interpreter is executed by the kernel, which looks in no PATH.
func (l *lookup) interpreter(name, asked string, depth int) error {
	full, err := l.candidate(l.absolute(name), name)
	var start *launch.StartError
	if errors.As(err, &start) {
		return &launch.StartError{
			ExitCode: start.ExitCode,
			Err:      fmt.Errorf("program %q: interpreter: %w", asked, start.Err),
		}
	}
	if err != nil || full == "" {
		return err
	}
	return l.check(full, name, depth)
}

// elfMachines are the machines that a host of each architecture executes.
var elfMachines = map[string][]uint16{
	"amd64":   {62, 3}, // x86-64 and, with the kernel's emulation, i386
	"arm64":   {183, 40},
	"riscv64": {243},
	"ppc64le": {21},
	"s390x":   {22},
}

var machineNames = map[uint16]string{
	3: "i386", 8: "mips", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86-64", 183: "aarch64", 243: "riscv", 258: "loongarch",
}

// ELF constants (elf.h).
const (
	elfHeader64 = 64
	elfHeader32 = 52
	elfInterp   = 3 // PT_INTERP
)

// elfFile is what matters of an ELF header and where the program headers are.
type elfFile struct {
	order       binary.ByteOrder
	is64        bool
	machine     uint16
	off         uint64
	size, count int
}

// parseELF reads the header by itself: debug/elf wants sections too, which a
// stripped or damaged file need not have to run.
func parseELF(head []byte) (e elfFile, ok bool) {
	if len(head) < elfHeader32 {
		return e, false
	}
	e.is64, e.order = head[4] == 2, binary.LittleEndian
	if head[5] == 2 {
		e.order = binary.BigEndian
	}
	e.machine = e.order.Uint16(head[18:])
	if !e.is64 {
		e.off = uint64(e.order.Uint32(head[28:]))
		e.size, e.count = int(e.order.Uint16(head[42:])), int(e.order.Uint16(head[44:]))
		return e, e.size >= 32
	}
	if len(head) < elfHeader64 {
		return e, false
	}
	e.off = e.order.Uint64(head[32:])
	e.size, e.count = int(e.order.Uint16(head[54:])), int(e.order.Uint16(head[56:]))
	return e, e.size >= 56
}

// interpreter returns the loader that the file names, "" if it needs none.
func (e elfFile) interpreter(f *os.File) (name string, ok bool) {
	if e.off > 1<<62 {
		return "", false
	}
	ph := make([]byte, min(e.size, 56))
	for i := range e.count {
		if _, err := f.ReadAt(ph, int64(e.off)+int64(i*e.size)); err != nil {
			return "", false
		}
		if e.order.Uint32(ph) != elfInterp {
			continue
		}
		at, n := uint64(e.order.Uint32(ph[4:])), uint64(e.order.Uint32(ph[16:]))
		if e.is64 {
			at, n = e.order.Uint64(ph[8:]), e.order.Uint64(ph[32:])
		}
		if n < 2 || n > unix.PathMax || at > 1<<62 {
			return "", false
		}
		text := make([]byte, n)
		if _, err := f.ReadAt(text, int64(at)); err != nil {
			return "", false
		}
		text, _, _ = bytes.Cut(text, []byte{0})
		return string(text), true
	}
	return "", true
}

func (l *lookup) checkELF(f *os.File, head []byte, asked string) error {
	damaged := notExecutable("program %q: damaged ELF file", asked)
	e, ok := parseELF(head)
	if !slices.Contains(elfMachines[runtime.GOARCH], e.machine) && len(head) >= elfHeader32 {
		if otherFormats() {
			return nil // who interprets it is binfmt_misc's business
		}
		name := machineNames[e.machine]
		if name == "" {
			name = fmt.Sprintf("machine %d", e.machine)
		}
		return notExecutable("program %q: made for %s, this host is %s", asked, name, runtime.GOARCH)
	}
	if !ok {
		return damaged
	}
	name, ok := e.interpreter(f)
	if !ok {
		return damaged
	}
	if name == "" {
		return nil
	}
	return l.interpreter(name, asked, maxInterpreters)
}

// otherFormats says whether the host has interpreters for more formats, which
// the kernel finds by rules of its own.
func otherFormats() bool {
	entries, err := os.ReadDir("/proc/sys/fs/binfmt_misc")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() != "register" && e.Name() != "status"
	})
}
