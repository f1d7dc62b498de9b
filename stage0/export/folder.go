package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/tree"
)

// FolderOptions say what a folder gets.
type FolderOptions struct {
	Manifest   []byte // of the image; nil: the folder is the root file system itself
	Overwrite  bool   // a folder that is there is replaced
	Dependents bool   // with the images that an ACI depends on, as a pod would see it
}

// Folder writes the image to a folder: the manifest and rootfs, or the root file
// system alone. It is made under a temporary name and renamed when it is whole.
func Folder(ctx context.Context, st *store.Store, rec image.Record, path string, opt FolderOptions) error {
	return protected(ctx, st, []image.Record{rec}, func(recs []image.Record) error {
		return newFolder(st, path, opt.Overwrite, func(dir string) error {
			if err := fill(ctx, st, recs[0], dir, opt); err != nil {
				return fmt.Errorf("image %s: %w", digest.ShortID(rec.ID, 12), err)
			}
			return nil
		})
	})
}

// newFolder makes a folder of what fill puts into one that is not at its place
// yet.
func newFolder(st *store.Store, path string, overwrite bool, fill func(dir string) error) (err error) {
	target, exists, err := checkTarget(path, overwrite)
	if err != nil {
		return err
	}
	if exists && (within(st.Data(), target) || within(target, st.Data())) {
		return errs.Newf(errs.Denied, "output folder %s: this would delete the data folder %s. Refusing.", path, st.Data())
	}
	if err := fault.Step("export.folder"); err != nil {
		return err
	}
	tmp, err := newPart(filepath.Dir(target), func(path string) error { return os.Mkdir(path, 0o700) })
	if err != nil {
		return err
	}
	defer func() {
		// After the exchange this is the old folder, before it a part of the new.
		err = errors.Join(err, tmp.remove())
		tmp.release()
	}()
	if err := fill(tmp.path); err != nil {
		return err
	}
	if err := fault.Step("export.folder.rename"); err != nil {
		return err
	}
	if exists {
		return unix.Renameat2(unix.AT_FDCWD, tmp.path, unix.AT_FDCWD, target, unix.RENAME_EXCHANGE)
	}
	err = unix.Renameat2(unix.AT_FDCWD, tmp.path, unix.AT_FDCWD, target, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return errExists(path)
	}
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func errExists(path string) error {
	return errs.Newf(errs.Usage, "output folder %s: output directory exists (try --overwrite)", path)
}

// checkTarget says whether the folder is there and may be replaced.
func checkTarget(path string, overwrite bool) (target string, exists bool, err error) {
	target, err = filepath.Abs(path)
	if err != nil {
		return "", false, err
	}
	info, err := os.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) {
		if err := fault.Step("export.mkdir"); err != nil {
			return "", false, err
		}
		return target, false, os.MkdirAll(filepath.Dir(target), 0o755)
	}
	if err != nil {
		return "", false, err
	}
	root, err := os.Lstat("/")
	if err != nil {
		return "", false, err
	}
	switch {
	case !overwrite:
		return "", false, errExists(path)
	case !info.IsDir():
		return "", false, errs.Newf(errs.Usage, "output folder %s: is no folder", path)
	case os.SameFile(root, info):
		return "", false, errs.Newf(errs.Denied, "output folder %s: this would delete your root filesystem. Refusing.", path)
	}
	return target, true, nil
}

// within says whether path is dir or lies below it, whatever links are on the way.
func within(path, dir string) bool {
	for _, p := range []*string{&path, &dir} {
		if real, err := filepath.EvalSymlinks(*p); err == nil {
			*p = real
		}
	}
	return path == dir || strings.HasPrefix(path, dir+"/")
}

func fill(ctx context.Context, st *store.Store, rec image.Record, dir string, opt FolderOptions) error {
	rootfs := dir
	if opt.Manifest != nil {
		rootfs = filepath.Join(dir, "rootfs")
		if err := os.Mkdir(rootfs, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "manifest"), opt.Manifest, 0o644); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask is
			return err
		}
	}
	keys := rec.Layers
	if !opt.Dependents && rec.Kind == image.ACI {
		keys = rec.Own
	}
	var trees []string
	for _, key := range keys {
		trees = append(trees, st.LayerFS(key))
	}
	return tree.Merge(ctx, trees, rootfs)
}
