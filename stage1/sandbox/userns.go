package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// A pod with a user namespace has two of the same ids. Pod init owns the one
// that the apps are in, and all other namespaces belong to that. The other is
// made before and is without a process: idmapped mounts take a namespace for
// the ids that it has, and the apps' root file systems are made beside pod init.

// inUserNS has a child of this process made in a user namespace with the ids.
// It stays this process's user there, who is nobody inside.
func inUserNS(attr *syscall.SysProcAttr, ids *idrange.Range) {
	if ids == nil {
		return
	}
	attr.Cloneflags |= unix.CLONE_NEWUSER
	mapping := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(ids.Start), Size: int(ids.Count)}}
	attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = mapping, mapping, true
}

// openUserNS makes the namespace for mounts.
func openUserNS(program string, ids *idrange.Range) (int, error) {
	if ids == nil {
		return -1, nil
	}
	if err := fault.Step("sandbox.userns"); err != nil {
		return -1, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return -1, err
	}
	defer r.Close()
	// Without arguments pod init's program waits for the end of its descriptor 3.
	cmd := exec.Command(program)
	cmd.Env, cmd.ExtraFiles, cmd.SysProcAttr = []string{}, []*os.File{r}, &syscall.SysProcAttr{}
	inUserNS(cmd.SysProcAttr, ids)
	if err := cmd.Start(); err != nil {
		w.Close()
		return -1, userNSError(err)
	}
	path := fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid) // not reaped yet: the pid is its own
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	w.Close()
	_ = cmd.Wait() // its exit code says that it has heard nothing
	if err != nil {
		return -1, fmt.Errorf("user namespace: open %s: %w", path, err)
	}
	return fd, nil
}

// userNSError names what of the kernel is in the way.
func userNSError(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		err = errs.WithClass(errs.Unavailable, fmt.Errorf("user namespace: there are as many as there may be: %w", err))
		return errs.WithHint(err, "\"sysctl user.max_user_namespaces\" tells how many; 0 forbids them")
	case errors.Is(err, unix.EINVAL):
		return errs.WithClass(errs.Unsupported, fmt.Errorf("user namespace: this kernel has none: %w", err))
	case errors.Is(err, unix.EPERM):
		err = errs.WithClass(errs.Denied, fmt.Errorf("user namespace: %w", err))
		return errs.WithHint(err, "rkt may not make one, or not with these ids: the container that it runs in has not got them")
	}
	return fmt.Errorf("user namespace: %w", err)
}

// idmap makes an id on the file system of a detached mount that id in the pod.
func (p *Pod) idmap(tree int, recursive bool) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	err := unix.MountSetattr(tree, "", flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(p.userns)})
	switch {
	case errors.Is(err, unix.ENOSYS):
		return errs.Newf(errs.Unsupported, "idmapped mount: this kernel has no mount_setattr (5.12)")
	case errors.Is(err, unix.EINVAL) && recursive:
		return errs.Newf(errs.Unsupported, "idmapped mount: %s, or a file system that is mounted below, can't be one", fsName(tree))
	case errors.Is(err, unix.EINVAL):
		return errs.Newf(errs.Unsupported, "idmapped mount: %s can't be one with this kernel", fsName(tree))
	case errors.Is(err, unix.EPERM):
		return errs.Newf(errs.Unsupported, "idmapped mount: %s is one already, or not rkt's to map", fsName(tree))
	case err != nil:
		return fmt.Errorf("idmapped mount: %w", err)
	}
	return nil
}

// fsName is the type of the file system that a descriptor is open on, as
// mount(8) names it.
func fsName(fd int) string {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return "the file system"
	}
	dev := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "the file system"
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		left, right, _ := strings.Cut(lines.Text(), " - ")
		if f, t := strings.Fields(left), strings.Fields(right); len(f) > 2 && f[2] == dev && len(t) > 0 {
			return t[0]
		}
	}
	return "file system " + dev
}

// asRoot runs what makes files, so that they are the pod's root's from the
// beginning, and may be made in an idmapped mount at all: the kernel refuses
// that to a user whom the mount has no id for.
func asRoot(ids *idrange.Range, f func() error) error {
	if ids == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread, which has the pod's ids now, goes with
		// the goroutine.
		runtime.LockOSThread()
		err := becomeOwner(ids.Host(0))
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// becomeOwner has the thread's files made for the user and its group, and keeps
// the rights that the kernel takes away with it.
func becomeOwner(id int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	if err := unix.Setfsgid(id); err != nil {
		return fmt.Errorf("group %d: %w", id, err)
	}
	if err := unix.Setfsuid(id); err != nil {
		return fmt.Errorf("user %d: %w", id, err)
	}
	if err := unix.Capset(&header, &caps[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// checkIDs refuses an app whose user the pod's namespace does not have.
func checkIDs(ids *idrange.Range, a account) error {
	hint := func(what string, id int) error {
		return errs.WithHint(errs.Newf(errs.Usage, "%s %d: the pod has only ids below %d", what, id, ids.Count),
			"--private-users=%s, or START:COUNT with a larger COUNT", idrange.Auto)
	}
	groups := append([]int{a.gid}, a.groups...)
	if ids == nil {
		return checkOwnIDs(a.uid, groups)
	}
	if !ids.Has(a.uid) {
		return hint("user", a.uid)
	}
	for _, gid := range groups {
		if !ids.Has(gid) {
			return hint("group", gid)
		}
	}
	return nil
}

// checkOwnIDs refuses what rkt itself has no ids for: those of an ordinary user.
func checkOwnIDs(uid int, gids []int) error {
	what, id := "", 0
	if !proc.HasUser(uid) {
		what, id = "user", uid
	}
	for _, gid := range gids {
		if !proc.HasGroup(gid) {
			what, id = "group", gid
		}
	}
	if what == "" {
		return nil
	}
	return errs.WithHint(errs.Newf(errs.Usage, "%s %d: not in the user namespace that rkt is in", what, id), "/etc/subuid and /etc/subgid say which ids there are")
}

// lay gives an overlay its lower layers with the pod's ids. The kernel stacks
// only what is attached somewhere, until the overlay has its own copies.
func (p *Pod) lay(layer int) (tree int, at string, err error) {
	if err := fault.Step("rootfs.idmap"); err != nil {
		return -1, "", err
	}
	if tree, err = cloneTree(layer, "", false); err != nil {
		return -1, "", err
	}
	if err = p.idmap(tree, false); err == nil {
		at, err = os.MkdirTemp(p.base, "layer-")
	}
	if err == nil {
		if err = attachTree(tree, at); err != nil {
			_ = os.Remove(at)
		}
	}
	if err != nil {
		_ = unix.Close(tree)
		return -1, "", err
	}
	return tree, at, nil
}

// lift undoes what lay attached; the private tmpfs takes along what is left.
func lift(at string) {
	if unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
		_ = os.Remove(at)
	}
}

// stackError names what a kernel lacks that maps ids of mounts but does not
// stack them.
func (p *Pod) stackError(err error) error {
	if p.plan.IDs == nil || !errors.Is(err, unix.EINVAL) {
		return err
	}
	return errs.WithHint(errs.WithClass(errs.Unsupported, err), "the kernel may be too old to stack idmapped layers (5.19): without --private-users it works")
}

// layerError says more of a layer that can't be used.
func layerError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errs.Newf(errs.Corrupt, "layer: %w", err)
	}
	if errs.Is(err, errs.Unsupported) {
		return errs.WithHint(errs.WithClass(errs.Unsupported, fmt.Errorf("layer %s: %w", path, err)),
			"a data folder on another file system, such as ext4 or xfs, or the pod without --private-users")
	}
	return fmt.Errorf("layer: %w", err)
}
