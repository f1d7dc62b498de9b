package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
)

const labelAttr = "security.selinux"

// systemFolders would be lost to the host's own programs with another label.
func systemFolders() []string {
	return []string{
		"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/root",
		"/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/log",
	}
}

// relabel gives a source, and all in it, the SELinux context that the plan
// says. What has it already is not written to.
func (v *volume) relabel(fd int) error {
	if v.Label == "" {
		return nil
	}
	real, err := os.Readlink(fdPath(fd))
	if err != nil {
		return err
	}
	if slices.Contains(systemFolders(), real) {
		return errs.WithHint(errs.Newf(errs.Denied, "source %s: a folder of the system, which another SELinux label would break", real),
			"mount a folder of its own")
	}
	if err := fault.Step("volume.relabel"); err != nil {
		return err
	}
	if err := setLabel(fdPath(fd), v.Label, unix.Getxattr, unix.Setxattr); err != nil {
		return labelError(real, err)
	}
	if !v.dir {
		return nil
	}
	dir, err := os.Open(fdPath(fd))
	if err != nil {
		return err
	}
	defer dir.Close()
	return labelAll(dir, real, v.Label)
}

// labelAll walks by descriptor: a folder that is exchanged with a symlink
// meanwhile leads nowhere.
func labelAll(dir *os.File, name, label string) error {
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		inner := path.Join(name, e.Name())
		err := setLabel(path.Join(fdPath(int(dir.Fd())), e.Name()), label, unix.Lgetxattr, unix.Lsetxattr)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return labelError(inner, err)
		}
		if !e.IsDir() {
			continue
		}
		sub, err := openAt(dir, e.Name(), unix.O_RDONLY|unix.O_DIRECTORY)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue
		}
		if err != nil {
			return err
		}
		err = labelAll(sub, inner, label)
		if cerr := sub.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func setLabel(name, label string, get func(string, string, []byte) (int, error), set func(string, string, []byte, int) error) error {
	has := make([]byte, 4096)
	// The kernel's own labels end with a NUL.
	n, err := get(name, labelAttr, has)
	if err == nil && (string(has[:n]) == label || string(has[:n]) == label+"\x00") {
		return nil
	}
	return set(name, labelAttr, []byte(label), 0)
}

func labelError(name string, err error) error {
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EROFS) {
		return errs.Newf(errs.Unsupported, "source %s: the file system takes no SELinux label: %w", name, err)
	}
	return fmt.Errorf("source %s: SELinux label: %w", name, err)
}
