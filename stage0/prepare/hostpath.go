package prepare

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/stage0/kube"
)

// hostPath makes sure that what a Pod names on the host is of the type that it
// says, and makes what it lets be made. The check is for the user who mixed
// something up: what is there when the pod starts is what is mounted.
func hostPath(p kube.HostPath) error {
	info, err := os.Stat(p.Path)
	if errors.Is(err, fs.ErrNotExist) {
		switch p.Type {
		case kube.DirectoryOrCreate:
			if err := fault.Step("prepare.mkdir-hostpath"); err != nil {
				return err
			}
			if err := os.MkdirAll(p.Path, 0o755); err != nil {
				return err
			}
			return os.Chmod(p.Path, 0o755) // whatever the caller's umask is
		case kube.FileOrCreate:
			return makeFile(p.Path)
		case kube.AnyPath, kube.Directory, kube.File, kube.Socket, kube.CharDevice, kube.BlockDevice:
		}
		err = errs.WithHint(errs.Newf(errs.NotFound, "%s: not there", p.Path), "the type %s wants it to be", p.Type)
	}
	if err != nil {
		return err
	}
	if !isOfType(info.Mode(), p.Type) {
		return errs.Newf(errs.Usage, "%s: is no %s", p.Path, p.Type)
	}
	return nil
}

// makeFile leaves one that comes to be meanwhile as it is.
func makeFile(path string) error {
	if err := fault.Step("prepare.create-hostpath"); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o644), f.Close())
}

func isOfType(mode fs.FileMode, want kube.HostPathType) bool {
	switch want {
	case kube.Directory, kube.DirectoryOrCreate:
		return mode.IsDir()
	case kube.File, kube.FileOrCreate:
		return mode.IsRegular()
	case kube.Socket:
		return mode&fs.ModeSocket != 0
	case kube.CharDevice:
		return mode&fs.ModeCharDevice != 0
	case kube.BlockDevice:
		return mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
	case kube.AnyPath:
	}
	return true
}

func (in Input) hostPaths() error {
	for _, p := range in.HostPaths {
		if err := hostPath(p); err != nil {
			return fmt.Errorf("%s: %w", p.Field, err)
		}
	}
	return nil
}
