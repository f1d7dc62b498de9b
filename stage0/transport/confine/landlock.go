package confine

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// names and certificates are what a client of the network reads of its host.
var (
	names        = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/localtime"}
	certificates = []string{
		"/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/usr/lib/ssl", "/usr/share/ca-certificates",
		"/usr/local/share/ca-certificates", "/usr/share/pki", "/var/lib/ca-certificates",
	}
)

// readable lists the places that exist, links followed: a rule is for the file
// and not for its name.
func readable() []string {
	var found []string
	for _, path := range append(names, certificates...) {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			found = append(found, target)
		}
	}
	return found
}

// rights are what each version of Landlock can refuse, as the number of bits.
var rights = map[int]int{1: 13, 2: 14, 3: 15, 4: 15}

// rightsNow are those of version 5 and later that are known here.
const rightsNow = 16

// landlock refuses all of the file system but reading below the places. The
// version is 0 if the kernel has no Landlock.
func landlock(places []string) (version int, err error) {
	v, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0, nil
	}
	version = int(v)
	bits := rightsNow
	if n, ok := rights[version]; ok {
		bits = n
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: 1<<bits - 1}
	set, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
	if e != 0 {
		return 0, errs.Newf(errs.Internal, "landlock: %w", e)
	}
	defer unix.Close(int(set))
	for _, path := range places {
		if err := permit(int(set), path); err != nil {
			return 0, errs.Newf(errs.Internal, "landlock: %s: %w", path, err)
		}
	}
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); e != 0 {
		return 0, errs.Newf(errs.Internal, "landlock: %w", e)
	}
	return version, nil
}

// permit lets a file, or all below a folder, be read.
func permit(set int, path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil // gone meanwhile, or not for nobody anyway
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: unix.LANDLOCK_ACCESS_FS_READ_FILE, Parent_fd: int32(fd)}
	if info.IsDir() {
		rule.Allowed_access |= unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	_, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
