package direct

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/activation"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
)

// The three numbers of ioctl(2) for a pty that are the same everywhere rkt runs.
const ttyFlags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC

// streams gives the program a terminal, or puts the app's own null device where
// the host's was: a descriptor of that would let the app change its owner. An
// app may have removed its own, or put a link there to what only this process
// has open: then there is no program (CVE-2025-31133 was of that kind).
func (p *program) streams(id identity, f facts, console bool) {
	if !id.Stdio.TTY {
		for n, null := range f.null {
			if !null {
				continue
			}
			fd, _ := p.open("null device", "/dev/null", unix.O_RDWR, "O_RDWR", unix.RESOLVE_NO_SYMLINKS)
			p.do("null device", unix.SYS_DUP3, fd.arg(), imm(n), imm(0))
			p.close("null device", fd)
		}
		return
	}
	const what = "terminal"
	master, _ := p.open(what, "/dev/pts/ptmx", ttyFlags, "O_RDWR|O_NOCTTY", unix.RESOLVE_NO_SYMLINKS)
	p.do(what, unix.SYS_IOCTL, master.arg(), flags(uint(unix.TIOCSPTLCK)), p.data(make([]byte, 4), "unlock"))
	tty, _ := p.get(what, unix.SYS_IOCTL, master.arg(), flags(uint(unix.TIOCGPTPEER)), flags(ttyFlags))
	p.do(what, unix.SYS_FCHOWN, tty.arg(), imm(f.ids.Host(id.Command.UID)), imm(-1))
	size := binary.LittleEndian.AppendUint16(nil, id.Stdio.Height)
	size = binary.LittleEndian.AppendUint16(size, id.Stdio.Width)
	text := strconv.Itoa(int(id.Stdio.Height)) + "x" + strconv.Itoa(int(id.Stdio.Width))
	p.do(what, unix.SYS_IOCTL, tty.arg(), flags(uint(unix.TIOCSWINSZ)), p.data(append(size, 0, 0, 0, 0), text))
	p.do(what, opSend, master.arg())
	if console {
		tree, _ := p.get(what, unix.SYS_OPEN_TREE, tty.arg(), p.string(""), flags(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH))
		to, _ := p.get(what, opTarget, p.string("/dev/console"), tty.arg(), flags(0))
		p.moveMount(what, tree, to)
		p.close(what, tree, to)
	}
	for n := range 3 {
		p.do(what, unix.SYS_DUP3, tty.arg(), imm(n), imm(0))
	}
	p.do(what, unix.SYS_IOCTL, imm(0), flags(uint(unix.TIOCSCTTY)), imm(0))
	p.close(what, tty, master)
}

// confine takes from the process what the program shall not have, waits to be
// let go, and executes it. An app that begins gets mounts of its user
// namespace's own.
func (p *program) confine(id identity, l labels, f facts, begins bool) {
	// A nameless session keyring, which nobody else can join by its name.
	p.do("session keyring", unix.SYS_KEYCTL, imm(unix.KEYCTL_JOIN_SESSION_KEYRING), imm(0)).may(0, unix.ENOSYS)
	if id.Nice != nil {
		p.do("nice "+strconv.Itoa(*id.Nice), unix.SYS_SETPRIORITY, imm(unix.PRIO_PROCESS), imm(0), imm(*id.Nice))
	}
	for _, r := range id.Rlimits {
		limit := binary.LittleEndian.AppendUint64(nil, r.Soft)
		limit = binary.LittleEndian.AppendUint64(limit, r.Hard)
		text := cell.LimitText(r.Soft) + ":" + cell.LimitText(r.Hard)
		p.do("limit "+strconv.Itoa(r.Type), unix.SYS_PRLIMIT64, imm(0), imm(r.Type), p.data(limit, text), imm(0))
	}
	p.do("umask", unix.SYS_UMASK, octal(id.Umask))
	p.do("signals", opSignals)
	p.do("wait", opReady)
	if l.apparmor != noSlot {
		p.label("AppArmor profile "+id.AppArmor, "exec "+id.AppArmor, l.apparmor)
	}
	if l.selinux != noSlot {
		p.label("SELinux context "+id.Label, id.Label, l.selinux)
	}
	p.joinUsers(f, begins)
	n := len(id.Sockets)
	if n > 0 {
		// The text is the variable's own, which the list of them leads to.
		pid := p.string(listenPID)
		pid.value += uint64(len(activation.PID + "="))
		p.do("sockets", opSockets, imm(f.files.count), imm(n), pid)
	}
	// Of the launcher process's and its child's own there is only the socket.
	p.do("close descriptors", unix.SYS_CLOSE_RANGE, imm(controlFD+n+1), arg{value: 1<<32 - 1, text: "all"}, imm(0))
	// Without no-new-privileges a filter takes CAP_SYS_ADMIN; else it comes last,
	// so that the fewest calls have to pass it.
	if !id.NoNewPrivs {
		p.filter(id)
	}
	p.credentials(id, f)
	if id.NoNewPrivs {
		p.do("no new privileges", unix.SYS_PRCTL, imm(unix.PR_SET_NO_NEW_PRIVS), imm(1), imm(0), imm(0), imm(0))
		p.filter(id)
	}
	p.exec(id)
}

// joinUsers comes after all that takes the host's rights: what the process has
// from here on it has in the pod's user namespace only. The copy of the mounts is
// that one's, so that who has CAP_SYS_ADMIN there may mount, but can't take away
// or make writable what came with it: the kernel locks that.
func (p *program) joinUsers(f facts, begins bool) {
	if f.ids == nil {
		return
	}
	p.join("user", f.files.user, unix.CLONE_NEWUSER)
	if begins {
		p.do("mount namespace", unix.SYS_UNSHARE, flags(unix.CLONE_NEWNS))
	}
}

func (p *program) label(what, text string, fd slot) {
	p.do(what, unix.SYS_WRITE, fd.arg(), p.string(text), imm(len(text)))
}

func (p *program) filter(id identity) {
	if n := len(id.Filter) / 8; n > 0 {
		p.do("seccomp filter", opFilter, imm(n), p.data(id.Filter, "..."), flags(id.FilterFlag))
	}
}

// credentials makes the process the app's user, with the app's capabilities.
func (p *program) credentials(id identity, f facts) {
	cmd := id.Command
	what := "chdir " + cmd.Cwd
	cwd := p.string(cmd.Cwd)
	if cmd.Cwd != "" {
		p.do(what, opChdir, cwd, imm(0))
	}
	set := uint64(0)
	for _, c := range id.Caps {
		set |= 1 << c
	}
	for c := range f.lastCap + 1 {
		if set&(1<<c) == 0 {
			p.do("capability "+strconv.Itoa(c), unix.SYS_PRCTL, imm(unix.PR_CAPBSET_DROP), imm(c), imm(0), imm(0), imm(0))
		}
	}
	p.do("keep capabilities", unix.SYS_PRCTL, imm(unix.PR_SET_KEEPCAPS), imm(1), imm(0), imm(0), imm(0))
	gids := make([]byte, 0, 4*len(cmd.Gids))
	var text []string
	for _, g := range cmd.Gids {
		gids = binary.LittleEndian.AppendUint32(gids, uint32(g))
		text = append(text, strconv.Itoa(g))
	}
	p.do("groups", unix.SYS_SETGROUPS, imm(len(cmd.Gids)), p.data(gids, "["+strings.Join(text, " ")+"]"))
	gid, uid := imm(cmd.GID), imm(cmd.UID)
	p.do("group "+gid.text, unix.SYS_SETRESGID, gid, gid, gid)
	p.do("user "+uid.text, unix.SYS_SETRESUID, uid, uid, uid)
	if cmd.Cwd != "" {
		p.do(what, opChdir, cwd, imm(1))
	}
	p.do("keep capabilities", unix.SYS_PRCTL, imm(unix.PR_SET_KEEPCAPS), imm(0), imm(0), imm(0), imm(0))
	if cmd.UID != 0 {
		// It would lose them with the program's first instruction, but not those
		// that the program's file has too: no-new-privileges lets one keep what
		// one has. And what the user may not execute they would.
		set = 0
	}
	p.capset("capabilities", set)
	p.do("ambient capabilities", unix.SYS_PRCTL, imm(unix.PR_CAP_AMBIENT), imm(unix.PR_CAP_AMBIENT_CLEAR_ALL), imm(0), imm(0), imm(0))
}

// capset leaves the process these capabilities, effective and permitted.
func (p *program) capset(what string, set uint64) {
	var caps []byte
	for _, half := range []uint32{uint32(set), uint32(set >> 32)} {
		for _, v := range []uint32{half, half, 0} { // effective, permitted, inheritable
			caps = binary.LittleEndian.AppendUint32(caps, v)
		}
	}
	header := binary.LittleEndian.AppendUint32(nil, unix.LINUX_CAPABILITY_VERSION_3)
	header = binary.LittleEndian.AppendUint32(header, 0)
	p.do(what, unix.SYS_CAPSET, p.data(header, "version 3"), p.data(caps, "0x"+strconv.FormatUint(set, 16)))
}

// exec executes the program: as it is named, if it is by a path, else the first
// that is found in the folders of its PATH.
func (p *program) exec(id identity) {
	env := environment(id.Command.Env)
	if len(id.Sockets) > 0 {
		env = append(slices.DeleteFunc(env, func(v string) bool {
			name, _, _ := strings.Cut(v, "=")
			return activation.Variable(name)
		}), append(activation.Environment(id.Sockets), listenPID)...)
	}
	name := id.Argv[0]
	candidates, lookup := []string{name}, 0
	if !strings.Contains(name, "/") {
		candidates, lookup = nil, 1
		for _, v := range env {
			if path, ok := strings.CutPrefix(v, "PATH="); ok && path != "" {
				for dir := range strings.SplitSeq(path, ":") {
					if dir == "" {
						dir = "."
					}
					candidates = append(candidates, dir+"/"+name)
				}
			}
		}
	}
	p.do(whatExec, opExec, p.list(candidates, strings.Join(candidates, ":")), p.list(id.Argv, strconv.Itoa(len(id.Argv))+" arguments"),
		p.list(env, strconv.Itoa(len(env))+" variables"), imm(lookup))
}

// listenPID is a variable with room for a pid, which the process itself writes.
const listenPID = activation.PID + "=0000000000"

// whatExec is the operation that says of the program itself why it can't run.
const whatExec = "program"

// environment has each variable once, the last that was set, and a HOME.
func environment(env []string) []string {
	seen := map[string]bool{"": true}
	out := make([]string, 0, len(env)+1)
	for _, v := range slices.Backward(env) {
		key, value, _ := strings.Cut(v, "=")
		if seen[key] || key == "HOME" && value == "" {
			continue
		}
		seen[key] = true
		out = append(out, v)
	}
	slices.Reverse(out)
	if !seen["HOME"] {
		out = append(out, "HOME=/")
	}
	return out
}
