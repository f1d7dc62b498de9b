package direct

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Operations that are no system call. applaunch.c has the same list.
const (
	opFork = 0x10000 + iota
	opReady
	opTarget
	opAttr
	opMask
	opSend
	opSignals
	opChdir
	opFilter
	opExec
	opSockets
)

// The layout that applaunch.c reads.
const (
	magic      = 0x726b7431
	headerSize = 4096 // a page of its own, which both sides share
	opSize     = 88
	maxSlots   = 4096
	pidOffset  = 12
)

type argKind uint8

const (
	immediate argKind = iota
	pointer           // into the blob
	saved             // the result of an earlier operation
)

type arg struct {
	kind  argKind
	value uint64
	text  string // how a dump shows it
}

// slot is where the result of an operation is kept for later ones.
type slot int

// noSlot is for results that nobody asks for.
const noSlot slot = -1

// op is one operation, with what is said of its failure.
type op struct {
	call uint32
	args []arg
	save slot
	okay []unix.Errno // no failure: then skip operations are left out
	skip int
	what string
}

// program is the list of operations that makes a process an app, or one that
// runs beside an app.
type program struct {
	ops  []op
	blob []byte
	// Descriptors that the launcher process is given, and the slots in use.
	slots [maxSlots]bool
	text  map[string]uint64 // strings that are in the blob already
	full  bool              // there were not enough slots
}

func newProgram() *program {
	p := &program{text: map[string]uint64{}, blob: make([]byte, 8)} // a list ends with offset 0
	p.slots[hostFDs] = true
	return p
}

// hostFDs is the slot of the host's /proc/self/fd.
const hostFDs slot = 0

// slot takes a free slot.
func (p *program) slot() slot {
	for i := range p.slots {
		if !p.slots[i] {
			p.slots[i] = true
			return slot(i)
		}
	}
	p.full = true
	return 0
}

func imm[T ~int | ~int32 | ~int64 | ~uint | ~uint32 | ~uint64 | ~uintptr](n T) arg {
	return arg{value: uint64(n), text: strconv.FormatInt(int64(n), 10)}
}

// flags is a number that a dump shows as bits.
func flags[T ~int | ~int32 | ~int64 | ~uint | ~uint32 | ~uint64](n T) arg {
	return arg{value: uint64(n), text: "0x" + strconv.FormatUint(uint64(n), 16)}
}

// octal is a number that a dump shows as a file's mode.
func octal(n uint32) arg {
	return arg{value: uint64(n), text: "0" + strconv.FormatUint(uint64(n), 8)}
}

var cwdFD = arg{value: uint64(0xffffffffffffff9c), text: "AT_FDCWD"}

func (s slot) arg() arg {
	return arg{kind: saved, value: uint64(s), text: "$" + strconv.Itoa(int(s))}
}

// data puts bytes into the blob, where the kernel may write as well.
func (p *program) data(b []byte, text string) arg {
	for len(p.blob)%8 != 0 {
		p.blob = append(p.blob, 0)
	}
	at := uint64(len(p.blob))
	p.blob = append(p.blob, b...)
	return arg{kind: pointer, value: at, text: text}
}

func (p *program) string(s string) arg {
	return arg{kind: pointer, value: p.put(s), text: strconv.Quote(s)}
}

// put has the text in the blob once.
func (p *program) put(s string) uint64 {
	at, ok := p.text[s]
	if !ok {
		at = uint64(len(p.blob))
		p.blob = append(append(p.blob, s...), 0)
		p.text[s] = at
	}
	return at
}

// list puts strings into the blob, and the offsets of all of them, which end
// with 0.
func (p *program) list(all []string, text string) arg {
	offsets := make([]byte, 0, 8*len(all)+8)
	for _, s := range all {
		offsets = binary.LittleEndian.AppendUint64(offsets, p.put(s))
	}
	a := p.data(binary.LittleEndian.AppendUint64(offsets, 0), text)
	a.value |= relocated
	return a
}

// relocated marks a list in the blob: what it points to is relative to the
// blob as long as the operations before it are not all there.
const relocated = 1 << 63

// do appends an operation that must not fail.
func (p *program) do(what string, call uint32, args ...arg) *op {
	p.ops = append(p.ops, op{call: call, args: args, save: noSlot, what: what})
	return &p.ops[len(p.ops)-1]
}

// get appends an operation whose result is kept.
func (p *program) get(what string, call uint32, args ...arg) (slot, *op) {
	s := p.slot()
	o := p.do(what, call, args...)
	o.save = s
	return s, o
}

// may makes errors no failure; then the next skip operations are left out.
func (o *op) may(skip int, okay ...unix.Errno) {
	o.skip, o.okay = skip, okay
}

func (p *program) close(what string, slots ...slot) {
	for _, s := range slots {
		p.do(what, unix.SYS_CLOSE, s.arg())
		p.slots[s] = false
	}
}

// bytes is the program as applaunch reads it: the header's page, the
// operations, the blob. The first files descriptors are the program's own.
func (p *program) bytes(files int) []byte {
	shift := uint64(opSize * len(p.ops))
	out := make([]byte, headerSize, headerSize+int(shift)+len(p.blob))
	binary.LittleEndian.PutUint32(out, magic)
	binary.LittleEndian.PutUint32(out[4:], uint32(len(p.ops)))
	binary.LittleEndian.PutUint32(out[8:], uint32(files))
	binary.LittleEndian.PutUint64(out[16:], shift+uint64(len(p.blob)))
	blob := append([]byte(nil), p.blob...)
	for _, o := range p.ops {
		out = o.append(out, blob, shift)
	}
	return append(out, blob...)
}

func (o *op) append(out, blob []byte, shift uint64) []byte {
	le := binary.LittleEndian
	out = le.AppendUint32(out, o.call)
	out = le.AppendUint32(out, uint32(int32(o.save)))
	for i := range 4 {
		errno := unix.Errno(0)
		if i < len(o.okay) {
			errno = o.okay[i]
		}
		out = le.AppendUint32(out, uint32(errno))
	}
	out = le.AppendUint32(out, uint32(o.skip))
	out = le.AppendUint32(out, 0)
	var kinds [8]byte
	var values [6]uint64
	for i, a := range o.args {
		kinds[i], values[i] = byte(a.kind), a.value
		if a.kind != pointer {
			continue
		}
		if a.value&relocated != 0 {
			values[i] &^= relocated
			for at := values[i]; ; at += 8 {
				offset := le.Uint64(blob[at:])
				if offset == 0 {
					break
				}
				le.PutUint64(blob[at:], offset+shift)
			}
		}
		values[i] += shift
	}
	out = append(out, kinds[:]...)
	for _, v := range values {
		out = le.AppendUint64(out, v)
	}
	return out
}

// String is the list for reading, one operation a line.
func (p *program) String() string {
	var b strings.Builder
	for _, o := range p.ops {
		if o.save != noSlot {
			fmt.Fprintf(&b, "$%d = ", o.save)
		}
		b.WriteString(callName(o.call))
		b.WriteByte('(')
		for i, a := range o.args {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(a.text)
		}
		b.WriteByte(')')
		if len(o.okay) > 0 {
			b.WriteString(" may ")
			for i, e := range o.okay {
				if i > 0 {
					b.WriteByte('|')
				}
				b.WriteString(unix.ErrnoName(e))
			}
			if o.skip > 0 {
				fmt.Fprintf(&b, " skip %d", o.skip)
			}
		}
		fmt.Fprintf(&b, "\t# %s\n", o.what)
	}
	return b.String()
}

// callName names what the compiler uses; the tables of all calls are the
// filter's, and of no use in a dump.
func callName(call uint32) string {
	for name, n := range map[string]uint32{
		"fork": opFork, "ready": opReady, "target": opTarget, "attr": opAttr, "mask": opMask, "send": opSend,
		"signals": opSignals, "chdir-late": opChdir, "filter": opFilter, "exec": opExec, "sockets": opSockets,
		"write": unix.SYS_WRITE, "setns": unix.SYS_SETNS, "setsid": unix.SYS_SETSID, "unshare": unix.SYS_UNSHARE,
		"mount": unix.SYS_MOUNT, "openat": unix.SYS_OPENAT, "openat2": unix.SYS_OPENAT2, "close": unix.SYS_CLOSE,
		"open_tree": unix.SYS_OPEN_TREE, "move_mount": unix.SYS_MOVE_MOUNT, "fsopen": unix.SYS_FSOPEN,
		"fsconfig": unix.SYS_FSCONFIG, "fsmount": unix.SYS_FSMOUNT, "chdir": unix.SYS_CHDIR,
		"pivot_root": unix.SYS_PIVOT_ROOT, "umount2": unix.SYS_UMOUNT2, "mknodat": unix.SYS_MKNODAT,
		"fchownat": unix.SYS_FCHOWNAT, "fchown": unix.SYS_FCHOWN, "symlinkat": unix.SYS_SYMLINKAT,
		"unlinkat": unix.SYS_UNLINKAT, "faccessat": unix.SYS_FACCESSAT, "umask": unix.SYS_UMASK, "dup3": unix.SYS_DUP3,
		"ioctl": unix.SYS_IOCTL, "keyctl": unix.SYS_KEYCTL, "setpriority": unix.SYS_SETPRIORITY,
		"prlimit64": unix.SYS_PRLIMIT64, "prctl": unix.SYS_PRCTL, "setgroups": unix.SYS_SETGROUPS,
		"setresgid": unix.SYS_SETRESGID, "setresuid": unix.SYS_SETRESUID, "capset": unix.SYS_CAPSET,
		"setfsuid": unix.SYS_SETFSUID, "setfsgid": unix.SYS_SETFSGID,
		"close_range": unix.SYS_CLOSE_RANGE, "mkdirat": unix.SYS_MKDIRAT,
	} {
		if n == call {
			return name
		}
	}
	return "call " + strconv.Itoa(int(call))
}
