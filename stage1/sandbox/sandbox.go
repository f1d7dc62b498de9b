// Package sandbox makes and holds what exists of a pod in the kernel before
// and beside its apps: the namespaces that pod init owns, the apps' root file
// systems, volumes, generated files. Everything is mounted in the supervisor's
// own mount namespace, so that it is gone when the supervisor is.
//
//	Open            volumes pinned, generated files written
//	StartInit       the pod's namespaces, with pod init as PID 1
//	MountRootFS     an app's overlay
//	Prepare         volumes and files in it, user, environment, folder
//	LookupProgram   what the launcher is going to execute
package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/stage1/cdi"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// Config is what a pod's sandbox is made of.
type Config struct {
	Plan     plan.Pod
	Dir      poddir.Dir // the pod's folder
	RunDir   string     // the pod's run folder, which exists
	InitPath string     // the program podinit; "" means beside this executable
	CDIDirs  []string   // of specifications of devices; nil means the host's
}

// Pod is the sandbox of one pod. But for StartInit its methods may be called
// from any goroutine, those of different apps at the same time.
type Pod struct {
	plan    plan.Pod
	dir     poddir.Dir
	base    string // a tmpfs that only this mount namespace has
	init    atomic.Pointer[podInit]
	userns  int // with the pod's ids, -1 if it has none of its own
	program string
	volumes map[string]*volume
	extras  map[string]extras // by app
	cdiDirs []string
	seeding sync.Mutex
	filesMu sync.Mutex
	files   []plan.File // the plan's, as long as nothing replaced one
}

// The folders of the private tmpfs.
const (
	mountsDir = "mnt" // in the run folder: where the tmpfs lies
	rootsDir  = "rootfs"
	volDir    = "volumes"
	etcDir    = "etc"
	shmDir    = "shm"
	notifyDir = "notify"
)

// Open checks that this process may mount, pins the volumes' sources and
// writes the generated files. A volume whose source is missing is an error
// that names both.
func Open(c Config) (_ *Pod, err error) {
	if err := checkNamespace(); err != nil {
		return nil, err
	}
	p := &Pod{
		plan: c.Plan, files: slices.Clone(c.Plan.Files), dir: c.Dir, base: filepath.Join(c.RunDir, mountsDir),
		program: c.InitPath, userns: -1, volumes: map[string]*volume{}, extras: map[string]extras{}, cdiDirs: c.CDIDirs,
	}
	if p.cdiDirs == nil {
		p.cdiDirs = cdi.Dirs()
	}
	if p.program == "" {
		if p.program, err = InitProgram(); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.userns, err = openUserNS(p.program, p.plan.IDs); err != nil {
		return nil, err
	}
	// Before the private tmpfs is there, so that a volume of the whole host
	// does not show the pod's own mounts a second time.
	for _, v := range c.Plan.Volumes {
		if p.volumes[v.Name], err = p.pin(v); err != nil {
			return nil, errs.WithClass(errs.ClassOf(err), fmt.Errorf("volume %s: %w", v.Name, err))
		}
	}
	if err := p.findDevices(); err != nil {
		return nil, err
	}
	if err := p.mountBase(); err != nil {
		return nil, err
	}
	for _, v := range p.volumes {
		if err := p.attach(v); err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	return p, p.writeFiles()
}

// InitProgram is pod init's program, beside this executable.
func InitProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("pod init: %w", err)
	}
	return filepath.Join(filepath.Dir(self), "podinit"), nil
}

// mountBase makes the tmpfs that holds mount points and generated files. Apps
// may write to the generated files, hence the limit.
func (p *Pod) mountBase() error {
	if err := fault.Step("sandbox.mkdir"); err != nil {
		return err
	}
	if err := os.Mkdir(p.base, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := mount("rkt", p.base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4m,mode=0700"); err != nil {
		return err
	}
	for _, d := range []string{rootsDir, volDir, etcDir, shmDir, notifyDir} {
		if err := os.Mkdir(filepath.Join(p.base, d), 0o755); err != nil {
			return err
		}
	}
	// One for the whole pod: its apps share IPC.
	options := fmt.Sprintf("mode=1777,uid=%d,gid=%[1]d", p.plan.IDs.Host(0))
	if p.plan.ShmSize > 0 {
		options += ",size=" + strconv.FormatInt(p.plan.ShmSize, 10)
	}
	return mount("shm", filepath.Join(p.base, shmDir), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options)
}

// Close takes down the mounts and what is left of the run folder's part. Apps
// and pod init must be gone. It may be called twice.
func (p *Pod) Close() error {
	for _, v := range p.volumes {
		if v != nil {
			v.close()
		}
	}
	if in := p.init.Load(); in != nil {
		in.close()
	}
	if p.userns >= 0 {
		_ = unix.Close(p.userns)
		p.userns = -1
	}
	if err := fault.Step("sandbox.umount"); err != nil {
		return err
	}
	// Detached: an app's mount namespace may be on its way out still.
	if err := unix.Unmount(p.base, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil &&
		!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", p.base, err)
	}
	if err := os.Remove(p.base); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// checkNamespace makes sure that no mount of ours can be seen on the host:
// the namespace is not the one of the host's first process nor the parent's,
// and no mount in it passes on what is mounted below.
func checkNamespace() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	for _, pid := range []int{1, os.Getppid()} {
		other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err == nil && other == own {
			return errs.Newf(errs.Internal, "mount namespace: shared with process %d", pid)
		}
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields, _, _ := strings.Cut(lines.Text(), " - ")
		if words := strings.Fields(fields); len(words) > 6 {
			for _, tag := range words[6:] {
				if strings.HasPrefix(tag, "shared:") {
					return errs.Newf(errs.Internal, "mount namespace: %s passes mounts on to the host", words[4])
				}
			}
		}
	}
	return lines.Err()
}

func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := fault.Step("sandbox.mount"); err != nil {
		return err
	}
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", fstype, target, err)
	}
	return nil
}

// fdPath names what a descriptor of this process is open on, for calls that
// take no descriptor.
func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
