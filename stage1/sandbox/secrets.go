package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
)

// Bounds of what is kept in memory: systemd's for one credential, and enough
// of them.
const (
	maxSecret  = 1 << 20
	maxSecrets = 256
)

// readSecrets copies the files of the volume into memory that is never swapped
// out, in which no part of this process ever has them. It is done once in a
// pod's life: a restarted app finds what the first one found.
func (v *volume) readSecrets() error {
	dir, names, err := v.findSecrets()
	if err != nil {
		return err
	}
	if len(names) > maxSecrets {
		return errs.Newf(errs.Usage, "source %s: %d files: more than %d", dir, len(names), maxSecrets)
	}
	if v.tree, err = secretFS(); err != nil {
		return err
	}
	for _, name := range names {
		if err := v.readSecret(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// findSecrets says which files of which folder they are.
func (v *volume) findSecrets() (dir string, names []string, err error) {
	dir = v.Source
	if dir == "" {
		if dir = os.Getenv("CREDENTIALS_DIRECTORY"); dir == "" {
			return "", nil, errs.WithHint(errs.Newf(errs.NotFound, "credentials: $CREDENTIALS_DIRECTORY is not set"),
				"a systemd unit with LoadCredential= sets it; source=PATH names a file or a folder")
		}
	}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, errs.Newf(errs.NotFound, "source %s: not there", dir)
	}
	if err != nil {
		return "", nil, err
	}
	switch {
	case !info.IsDir() && v.Source == "":
		return "", nil, errs.Newf(errs.Usage, "credentials: $CREDENTIALS_DIRECTORY is %s, which is no folder", dir)
	case !info.IsDir():
		return filepath.Dir(dir), []string{filepath.Base(dir)}, nil
	case len(v.Credentials) > 0:
		return dir, v.Credentials, nil
	}
	names, err = filesIn(dir)
	return dir, names, err
}

// filesIn lists what is no folder and not hidden: a folder of secrets that is
// replaced as a whole, as Kubernetes does it, has its parts behind dots.
func filesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err == nil && info.Mode().IsRegular() && e.Name()[0] != '.' {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (v *volume) readSecret(path string) error {
	// A fifo without a writer must not hold the pod's start.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return errs.Newf(errs.NotFound, "secret %s: not there", path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errs.Newf(errs.Usage, "secret %s: not a file", path)
	}
	if info.Size() > maxSecret {
		return errs.Newf(errs.Usage, "secret %s: larger than %d bytes", path, maxSecret)
	}
	out, err := putSecret(v.tree, filepath.Base(path), f)
	if err != nil {
		return fmt.Errorf("secret %s: %w", path, err)
	}
	return out.Close()
}

// putSecret makes a file with the content of another, which the kernel copies.
func putSecret(dir int, name string, in *os.File) (*os.File, error) {
	if err := fault.Step("secret.write"); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	out := os.NewFile(uintptr(fd), name)
	for left := maxSecret; left > 0; {
		n, err := unix.Sendfile(fd, int(in.Fd()), nil, left)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return out, err
		}
		left -= n
	}
	return out, nil
}

// secretMount is an app's own copy of a volume of secrets, writable until the
// app's user is known.
type secretMount struct {
	volume *volume
	tree   int
}

func (s secretMount) close() { _ = unix.Close(s.tree) }

// mountSecrets makes the app's copy and mounts it at an open target.
func (v *volume) mountSecrets(target int) (secretMount, error) {
	tree, err := secretFS()
	if err != nil {
		return secretMount{}, err
	}
	m := secretMount{v, tree}
	if err := moveTo(tree, target); err != nil {
		m.close()
		return secretMount{}, err
	}
	return m, nil
}

// secretFS is a file system whose pages are never swapped out: tmpfs since
// Linux 6.4, else ramfs.
func secretFS() (int, error) {
	if err := fault.Step("secret.mount"); err != nil {
		return -1, err
	}
	tree, err := memoryFS("tmpfs", "noswap")
	if errors.Is(err, unix.EINVAL) {
		tree, err = memoryFS("ramfs", "")
	}
	if err != nil {
		return -1, fmt.Errorf("file system for secrets: %w", err)
	}
	return tree, nil
}

func memoryFS(kind, flag string) (int, error) {
	ctx, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ctx)
	if flag != "" {
		if err := unix.FsconfigSetFlag(ctx, flag); err != nil {
			return -1, err
		}
	}
	// Nobody but root until the owner is known.
	if err := unix.FsconfigSetString(ctx, "mode", "0700"); err != nil {
		return -1, err
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, err
	}
	return unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}

// fill writes the files for whoever of the pod is to read them, and closes the file system
// for writing.
func (s secretMount) fill(uid, gid int) error {
	v := s.volume
	if v.UID >= 0 {
		uid = v.UID
	}
	if v.GID >= 0 {
		gid = v.GID
	}
	uid, gid = v.ids.Host(uid), v.ids.Host(gid)
	names, err := listFD(v.tree)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.write(name, uid, gid); err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
	}
	// Who may read a file may find it.
	mode := v.Mode&0o444 | v.Mode&0o444>>2
	if err := unix.Chown(fdPath(s.tree), uid, gid); err != nil {
		return fmt.Errorf("chown: %w", err)
	}
	if err := unix.Chmod(fdPath(s.tree), mode); err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	return readOnly(s.tree, false)
}

func (s secretMount) write(name string, uid, gid int) error {
	fd, err := unix.Openat(s.volume.tree, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(fd), name)
	defer in.Close()
	out, err := putSecret(s.tree, name, in)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := out.Chown(uid, gid); err != nil {
		return err
	}
	return unix.Fchmod(int(out.Fd()), s.volume.Mode)
}

// listFD lists a folder of which there is only a path's descriptor.
func listFD(dir int) ([]string, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "secrets")
	defer f.Close()
	return f.Readdirnames(-1)
}

// secretsAt mounts the app's copy of a volume of secrets; who reads it is known
// only once all is mounted, since the image's accounts may lie in a volume.
func (m *mounter) secretsAt(v *volume, target int) (uint64, error) {
	s, err := v.mountSecrets(target)
	if err != nil {
		return 0, err
	}
	m.secrets = append(m.secrets, s)
	return mountID(s.tree)
}

// fillSecrets is the end of secretsAt.
func (m *mounter) fillSecrets(uid, gid int) error {
	for _, s := range m.secrets {
		if err := s.fill(uid, gid); err != nil {
			return fmt.Errorf("volume %s: %w", s.volume.Name, err)
		}
	}
	return nil
}
