package confine

import (
	"os"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// Offsets in struct seccomp_data; the lower half of an argument comes first on
// the little-endian machines that rkt runs on.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// call is a system call that the filter lets through, under conditions that
// all have to hold.
type call struct {
	number uint32
	checks []check
}

// check looks at the lower half of an argument: one of its values, or bits that
// are set and bits that are not.
type check struct {
	arg        uint32
	mask       uint32 // of the bits that count for oneOf; 0: all
	oneOf      []uint32
	set, unset uint32
}

func plain(numbers ...uint32) []call {
	calls := make([]call, len(numbers))
	for i, n := range numbers {
		calls[i].number = n
	}
	return calls
}

// transfer and runtime are what each mode needs: bytes to and fro, and Go
// itself with its threads, memory, clock and poller.
func transfer() []call {
	return plain(
		unix.SYS_READ, unix.SYS_WRITE, unix.SYS_FUTEX, unix.SYS_EPOLL_PWAIT, unix.SYS_NANOSLEEP,
		unix.SYS_RECVMSG, unix.SYS_SENDMSG, unix.SYS_CLOSE, unix.SYS_EPOLL_CTL, unix.SYS_FCNTL,
	)
}

func runtime() []call {
	calls := plain(
		unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_EPOLL_CREATE1, unix.SYS_EVENTFD2, unix.SYS_EXIT,
		unix.SYS_EXIT_GROUP, unix.SYS_FSTAT, unix.SYS_GETPID, unix.SYS_GETRANDOM, unix.SYS_GETTID, unix.SYS_MADVISE,
		unix.SYS_MINCORE, unix.SYS_MUNMAP, unix.SYS_PREAD64, unix.SYS_RESTART_SYSCALL, unix.SYS_RT_SIGACTION,
		unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_YIELD,
		unix.SYS_SIGALTSTACK,
	)
	return append(append(calls, ofThisMachine()...),
		// Memory, but none that can be executed.
		call{unix.SYS_MMAP, []check{{arg: 2, unset: unix.PROT_EXEC}}},
		call{unix.SYS_MPROTECT, []check{{arg: 2, unset: unix.PROT_EXEC}}},
		// Threads, but no processes.
		call{unix.SYS_CLONE, []check{{arg: 0, set: unix.CLONE_THREAD | unix.CLONE_VM | unix.CLONE_SIGHAND}}},
		// Signals to its own threads, by which Go takes the processor from one.
		call{unix.SYS_TGKILL, []check{{arg: 0, oneOf: []uint32{uint32(os.Getpid())}}}},
		// The name of a piece of memory.
		call{unix.SYS_PRCTL, []check{{arg: 0, oneOf: []uint32{unix.PR_SET_VMA}}}},
	)
}

// network is a client of TCP and UDP that reads names and certificates. It
// neither listens nor accepts; bind is how Go finds out about IPv6.
func network() []call {
	calls := plain(
		unix.SYS_BIND, unix.SYS_CONNECT, unix.SYS_GETDENTS64, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKNAME,
		unix.SYS_GETSOCKOPT, unix.SYS_LSEEK, unix.SYS_READLINKAT, unix.SYS_RECVFROM, unix.SYS_SENDTO,
		unix.SYS_SETSOCKOPT, unix.SYS_SHUTDOWN, unix.SYS_WRITEV, unix.SYS_STATX,
	)
	return append(append(calls, statOfThisMachine()...),
		call{unix.SYS_OPENAT, []check{{arg: 2, unset: unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC | unix.O_APPEND | unix.O_PATH | unix.O_TMPFILE&^unix.O_DIRECTORY}}},
		call{unix.SYS_SOCKET, []check{
			{arg: 0, oneOf: []uint32{unix.AF_INET, unix.AF_INET6}},
			{arg: 1, mask: 0xf, oneOf: []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM}},
		}},
	)
}

// program assembles the filter: a call that isn't listed, or not like this,
// fails with EPERM; one of another architecture ends the process.
func program(calls []call) ([]bpf.RawInstruction, error) {
	code := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
	}
	for _, c := range calls {
		block := c.code()
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.number, SkipFalse: uint8(len(block))})
		code = append(code, block...)
	}
	code = append(code, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	return bpf.Assemble(code)
}

// code is what follows if it is this call. The accumulator is lost, so it ends
// with a verdict.
func (c call) code() []bpf.Instruction {
	refuse := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	var code []bpf.Instruction
	for _, k := range c.checks {
		code = append(code, bpf.LoadAbsolute{Off: offsetArgs + 8*k.arg, Size: 4})
		switch {
		case len(k.oneOf) > 0:
			if k.mask != 0 {
				code = append(code, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: k.mask})
			}
			for i, value := range k.oneOf {
				code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: uint8(len(k.oneOf) - i)})
			}
			code = append(code, refuse)
		default:
			code = append(code,
				bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: k.set | k.unset},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: k.set, SkipTrue: 1}, refuse)
		}
	}
	return append(code, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
}

// filter installs the filter of a mode in all threads and says how many calls
// it lets through.
func filter(mode fetchwire.Mode) (int, error) {
	calls := append(transfer(), runtime()...)
	if mode == fetchwire.Network {
		calls = append(calls, network()...)
	}
	raw, err := program(calls)
	if err != nil {
		return 0, errs.Newf(errs.Internal, "seccomp: %w", err)
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	// A thread that can't be brought along is told by its id in place of 0.
	thread, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if e != 0 || thread != 0 {
		return 0, errs.Newf(errs.Unsupported, "seccomp: %w (thread %d)", e, thread)
	}
	return len(calls), nil
}
