package direct

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/cgroup"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// facts is what the compiler must know of the host and of the start.
type facts struct {
	hierarchies []cgroup.Hierarchy // of cgroup v1, empty if there is only v2
	setAttr     bool               // there is mount_setattr(2)
	lastCap     int
	ids         *idrange.Range // of the pod, nil if it has no user namespace
	caps        uint64         // of this process
	inside      bool           // this process is in a user namespace itself
	files       inherited
	null        [3]bool // standard streams that are the host's null device
}

// inherited are the numbers of the descriptors that the launcher process gets
// beside its standard streams, -1 for those that it doesn't.
type inherited struct {
	cgroups            []int
	pid, ipc, uts, net int
	user               int
	main               int // a pidfd of the app's main process, for what runs beside
	count              int // the first number that is none of them; the program's sockets begin there
}

// The descriptors of applaunch.c's protocol.
const (
	controlFD = 3
	programFD = 4
)

// identity is who the program runs as, and with what.
type identity struct {
	Command    cell.Command  `json:"command"`
	Caps       []int         `json:"caps"`
	NoNewPrivs bool          `json:"noNewPrivs,omitempty"`
	Filter     []byte        `json:"filter,omitempty"` // as the kernel takes it
	FilterFlag uint          `json:"filterFlags,omitempty"`
	Umask      uint32        `json:"umask"`
	Nice       *int          `json:"nice,omitempty"`
	Label      string        `json:"label,omitempty"`
	AppArmor   string        `json:"apparmor,omitempty"`
	Rlimits    []cell.Rlimit `json:"-"`
	OOMAdj     *int          `json:"-"`
	Argv       []string      `json:"-"`
	Stdio      launch.Stdio  `json:"-"`
	Sockets    []string      `json:"-"` // names of those that the program gets
}

// labels are the open attribute files of security modules.
type labels struct{ selinux, apparmor slot }

// compileStart is the whole way from the launcher process to an app.
func compileStart(app launch.App, id identity, mounts []mount, f facts) *program {
	p := newProgram()
	p.attach(f.files)
	p.join("uts", f.files.uts, unix.CLONE_NEWUTS)
	p.join("ipc", f.files.ipc, unix.CLONE_NEWIPC)
	p.join("net", f.files.net, unix.CLONE_NEWNET)
	p.join("pid", f.files.pid, unix.CLONE_NEWPID)
	p.fork()

	p.do("mount namespace", unix.SYS_UNSHARE, flags(unix.CLONE_NEWNS))
	// What the host unmounts must not be held by an app; nothing goes out.
	p.do("mount namespace", unix.SYS_MOUNT, p.string(""), p.string("/"), imm(0), flags(unix.MS_SLAVE|unix.MS_REC), imm(0))
	if !f.setAttr {
		p.do("descriptors", unix.SYS_OPENAT, cwdFD, p.string("/proc/self/fd"), flags(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)).save = hostFDs
	}
	l := p.openHost(id)
	null, _ := p.get("null device", unix.SYS_OPEN_TREE, cwdFD, p.string("/dev/null"), flags(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC))
	trees := p.openVolumes(mounts, f)
	nodes := p.openNodes(app, f)
	p.do("cgroup namespace", unix.SYS_UNSHARE, flags(unix.CLONE_NEWCGROUP))
	p.pivot(app.RootFS)
	p.becomeOwner(f)

	p.do("umask", unix.SYS_UMASK, octal(0o022))
	for i, m := range mounts {
		p.mount(m, trees[i], f)
	}
	p.devices(app, mounts, nodes, f)
	p.streams(id, f, true)
	if cwd := id.Command.Cwd; cwd != "" {
		dir, _ := p.get("mkdir "+cwd, opTarget, p.string(cwd), imm(-1), flags(0))
		p.close("mkdir "+cwd, dir)
	}
	for _, path := range app.ReadOnlyPaths {
		p.readOnly(path, f)
	}
	for _, path := range app.MaskedPaths {
		p.do("hide "+path, opMask, p.string(path), null.arg(), imm(how(false, f)))
	}
	if app.ReadOnlyRootFS {
		p.readOnlyRoot(f)
	}
	p.confine(id, l, f, true)
	return p
}

// compileBeside is the whole way from the launcher process to a program beside
// an app.
func compileBeside(id identity, f facts) *program {
	p := newProgram()
	p.attach(f.files)
	p.join("pid", f.files.main, unix.CLONE_NEWPID)
	p.fork()
	l := p.openHost(id)
	p.join("the app's", f.files.main, unix.CLONE_NEWUTS|unix.CLONE_NEWIPC|unix.CLONE_NEWNET|unix.CLONE_NEWCGROUP|unix.CLONE_NEWNS)
	p.do("root", unix.SYS_CHDIR, p.string("/"))
	p.streams(id, f, false)
	p.confine(id, l, f, false)
	return p
}

// attach moves the launcher process into its cgroup, alone and by itself: that
// way v1 needs no lock that all of the host's forks take.
func (p *program) attach(files inherited) {
	for _, fd := range files.cgroups {
		p.do("enter cgroup", unix.SYS_WRITE, imm(fd), p.string("0"), imm(1))
	}
}

func (p *program) join(what string, fd, kinds int) {
	if fd >= 0 {
		p.do("join namespace "+what, unix.SYS_SETNS, imm(fd), flags(kinds))
	}
}

func (p *program) fork() {
	p.do(whatFork, opFork)
	p.do("session", unix.SYS_SETSID)
}

// whatFork is the operation whose ENOMEM means that pod init is gone.
const whatFork = "pid namespace"

// openHost opens what there is only in the host's /proc, and writes what can
// be written now.
func (p *program) openHost(id identity) labels {
	if id.OOMAdj != nil {
		text := strconv.Itoa(*id.OOMAdj)
		what := "oom_score_adj " + text
		fd, _ := p.get(what, unix.SYS_OPENAT, cwdFD, p.string("/proc/self/oom_score_adj"), flags(unix.O_WRONLY|unix.O_CLOEXEC))
		p.do(what, unix.SYS_WRITE, fd.arg(), p.string(text), imm(len(text)))
		p.close(what, fd)
	}
	l := labels{selinux: noSlot, apparmor: noSlot}
	attribute := func(what, path string) slot {
		fd, _ := p.get(what, unix.SYS_OPENAT, cwdFD, p.string("/proc/self/attr/"+path), flags(unix.O_WRONLY|unix.O_CLOEXEC))
		return fd
	}
	if id.Label != "" {
		l.selinux = attribute("SELinux context "+id.Label, "exec")
	}
	if id.AppArmor != "" {
		// Kernels with several security modules have a folder for each.
		what := "AppArmor profile " + id.AppArmor
		l.apparmor = attribute(what, "apparmor/exec")
		p.ops[len(p.ops)-1].may(0, unix.ENOENT)
	}
	return l
}

// openVolumes takes hold of the sources of bind mounts as long as there is the
// host's tree.
func (p *program) openVolumes(mounts []mount, f facts) []slot {
	trees := make([]slot, len(mounts))
	for i, m := range mounts {
		trees[i] = noSlot
		switch {
		case f.inside && (m.Type == "proc" || m.Type == "sysfs" && f.files.net >= 0):
			// The kernel lets a user namespace make one as long as it has all
			// of another in view.
			trees[i] = p.newMount(m.what(), m.Type, m.data, m.set)
		case f.inside && m.Type == "sysfs":
			// With the host's network it is the host's.
			trees[i], _ = p.get(m.what(), unix.SYS_OPEN_TREE, cwdFD, p.string("/sys"), flags(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE))
		case m.Type == "bind":
			how := unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
			if m.Recursive {
				how |= unix.AT_RECURSIVE
			}
			trees[i], _ = p.get(m.what()+": "+m.Source, unix.SYS_OPEN_TREE, cwdFD, p.string(m.Source), flags(how))
		}
	}
	return trees
}

// pivot makes the rootfs the root. The host's tree then lies on top of it, and
// must not stay: `..` at the root, as in a symbolic link, leads to what is
// mounted there.
func (p *program) pivot(rootfs string) {
	root := p.string(rootfs)
	p.do("root", unix.SYS_MOUNT, root, root, imm(0), flags(unix.MS_BIND|unix.MS_REC), imm(0))
	p.do("root", unix.SYS_CHDIR, root)
	p.do("root", unix.SYS_PIVOT_ROOT, p.string("."), p.string("."))
	p.do("root", unix.SYS_UMOUNT2, p.string("."), flags(unix.MNT_DETACH))
	p.do("root", unix.SYS_CHDIR, p.string("/"))
}

// becomeOwner has what is made from here on belong to the pod's root. What root
// has of rights to files goes with such a change, and is taken back.
func (p *program) becomeOwner(f facts) {
	if f.ids == nil {
		return
	}
	const what = "owner of files"
	root := imm(f.ids.Host(0))
	p.do(what, unix.SYS_SETFSGID, root)
	p.do(what, unix.SYS_SETFSUID, root)
	p.capset(what, f.caps)
}

// open opens a path as openat2(2) does; text says how.
func (p *program) open(what, path string, how uint64, text string, resolve uint64) (slot, *op) {
	data := make([]byte, 0, 24)
	for _, v := range []uint64{how | unix.O_CLOEXEC, 0, resolve} {
		data = binary.LittleEndian.AppendUint64(data, v)
	}
	return p.get(what, unix.SYS_OPENAT2, cwdFD, p.string(path), p.data(data, text), imm(len(data)))
}

// readOnly lays a read-only mount of a path over it, if it is there.
func (p *program) readOnly(path string, f facts) {
	what := "make " + path + " read-only"
	fd, o := p.open(what, path, unix.O_PATH, "O_PATH", unix.RESOLVE_NO_MAGICLINKS)
	o.may(5, unix.ENOENT)
	tree, _ := p.get(what, unix.SYS_OPEN_TREE, fd.arg(), p.string(""), flags(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH))
	p.moveMount(what, tree, fd)
	p.attr(what, tree, unix.MOUNT_ATTR_RDONLY, 0, 0, f.setAttr, f)
	p.close(what, tree, fd)
}

func (p *program) readOnlyRoot(f facts) {
	root, _ := p.get("read-only root", unix.SYS_OPENAT, cwdFD, p.string("/"), flags(unix.O_PATH|unix.O_CLOEXEC))
	p.attr("read-only root", root, unix.MOUNT_ATTR_RDONLY, 0, 0, false, f)
	p.close("read-only root", root)
}

func (p *program) moveMount(what string, from, to slot) {
	empty := p.string("")
	p.do(what, unix.SYS_MOVE_MOUNT, from.arg(), empty, to.arg(), empty, flags(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
}

// How opAttr works, as applaunch.c has it.
const (
	attrRecursive = 1
	attrOld       = 2
)

func (p *program) attr(what string, fd slot, set, clear uint64, propagation int, recursive bool, f facts) {
	p.do(what, opAttr, fd.arg(), flags(set), flags(clear), flags(propagation), imm(how(recursive, f)))
}

// how is what opAttr and opMask are told of the kernel.
func how(recursive bool, f facts) int {
	n := 0
	if recursive {
		n |= attrRecursive
	}
	if !f.setAttr {
		n |= attrOld
	}
	return n
}

// devLinks are what programs expect in /dev; ptmx is the app's own.
var devLinks = [][2]string{
	{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"},
	{"/proc/kcore", "core"}, {"pts/ptmx", "ptmx"},
}

// devices makes the nodes and the usual links, unless /dev is the host's.
func (p *program) devices(app launch.App, mounts []mount, nodes []slot, f facts) {
	isDev := func(m mount) bool { return m.Type == "bind" && filepath.Clean(m.Target) == "/dev" }
	if slices.ContainsFunc(mounts, isDev) {
		return
	}
	dirs := map[string]slot{}
	var order []slot
	folder := func(path string) slot {
		dir := filepath.Dir(path)
		s, ok := dirs[dir]
		if !ok {
			s, _ = p.get("mkdir "+dir, opTarget, p.string(dir), imm(-1), flags(0))
			dirs[dir] = s
			order = append(order, s)
		}
		return s
	}
	p.do("umask", unix.SYS_UMASK, octal(0))
	for i, d := range app.Devices {
		if !hasNode(d) {
			continue
		}
		if nodes[i] != noSlot {
			to, _ := p.get("device "+d.Path, opTarget, p.string(d.Path), nodes[i].arg(), flags(0))
			p.moveMount("device "+d.Path, nodes[i], to)
			p.close("device "+d.Path, nodes[i], to)
			continue
		}
		p.node(d, folder(d.Path), f.ids)
	}
	p.do("umask", unix.SYS_UMASK, octal(0o022))
	dev := folder("/dev/x")
	for _, l := range devLinks {
		what := "link /dev/" + l[1]
		switch l[1] {
		case "ptmx":
			p.do(what, unix.SYS_UNLINKAT, dev.arg(), p.string(l[1]), imm(0)).may(0, unix.ENOENT)
		case "core": // not in every kernel
			p.do(what, unix.SYS_FACCESSAT, cwdFD, p.string(l[0]), imm(0)).may(1, unix.ENOENT)
		}
		p.do(what, unix.SYS_SYMLINKAT, p.string(l[0]), dev.arg(), p.string(l[1])).may(0, unix.EEXIST)
	}
	p.close("devices", order...)
}

// hasNode says whether the device is to be seen, and not only to be used.
func hasNode(d plan.Device) bool {
	return !d.RuleOnly && d.Path != "" && filepath.Clean(d.Path) != "/dev/ptmx"
}

// openNodes takes hold of the host's own nodes where none can be made.
func (p *program) openNodes(app launch.App, f facts) []slot {
	nodes := make([]slot, len(app.Devices))
	for i, d := range app.Devices {
		nodes[i] = noSlot
		if f.inside && hasNode(d) {
			nodes[i], _ = p.get("device "+d.Path, unix.SYS_OPEN_TREE, cwdFD, p.string(d.HostPath), flags(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC))
		}
	}
	return nodes
}

// node makes one device node; one that is there is the image's affair, or a
// volume's, and the device rules bind it.
func (p *program) node(d plan.Device, dir slot, ids *idrange.Range) {
	what := "device " + d.Path
	mode := d.Mode & 0o777
	switch d.Type {
	case 'b':
		mode |= unix.S_IFBLK
	case 'p':
		mode |= unix.S_IFIFO
	default:
		mode |= unix.S_IFCHR
	}
	name := p.string(filepath.Base(d.Path))
	p.do(what, unix.SYS_MKNODAT, dir.arg(), name, octal(mode),
		arg{value: unix.Mkdev(uint32(d.Major), uint32(d.Minor)), text: strconv.FormatInt(d.Major, 10) + ":" + strconv.FormatInt(d.Minor, 10)}).
		may(1, unix.EEXIST)
	p.do(what, unix.SYS_FCHOWNAT, dir.arg(), name, imm(ids.Host(d.UID)), imm(ids.Host(d.GID)), flags(unix.AT_SYMLINK_NOFOLLOW))
}
