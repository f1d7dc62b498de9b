package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// writeFiles writes the generated files, which the apps of the pod share.
func (p *Pod) writeFiles() error {
	for _, f := range p.files {
		if err := p.writeFile(f); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pod) writeFile(f plan.File) error {
	if f.Source != "" {
		return nil
	}
	if err := fault.Step("sandbox.write"); err != nil {
		return err
	}
	file, err := os.OpenFile(p.etcFile(f), os.O_WRONLY|os.O_CREATE|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	// Cut last: apps that read the file meanwhile never find it empty.
	_, err = file.WriteAt([]byte(f.Content), 0)
	if err == nil {
		err = file.Truncate(int64(len(f.Content)))
	}
	if root := p.plan.IDs.Host(0); err == nil && root != 0 {
		err = file.Chown(root, root)
	}
	if err == nil {
		err = file.Chmod(0o644) // the umask is the caller's
	}
	return errors.Join(err, file.Close())
}

// ReplaceFile makes another file of a planned one, in all apps' root file
// systems at once. Whether an image's own goes first is decided by what is
// known when its app is prepared.
func (p *Pod) ReplaceFile(f plan.File) error {
	p.filesMu.Lock()
	defer p.filesMu.Unlock()
	for i, old := range p.files {
		if old.Target == f.Target {
			p.files[i] = f
			return p.writeFile(f)
		}
	}
	return nil // one that the user wanted not to be there
}

// currentFiles are the files as they are now.
func (p *Pod) currentFiles() []plan.File {
	p.filesMu.Lock()
	defer p.filesMu.Unlock()
	return slices.Clone(p.files)
}

func (p *Pod) etcFile(f plan.File) string { return filepath.Join(p.base, etcDir, path.Base(f.Target)) }

// file mounts a generated file, or one of the host's, read-only then. A
// volume at the very place has the last word.
func (m *mounter) file(f plan.File) error {
	if f.IfMissing && m.provided(f.Target) {
		return nil
	}
	target, err := m.root.ensure(f.Target, false, func(mnt uint64) bool { return m.makeIn[mnt] })
	if errs.Is(err, errs.NotFound) {
		// A volume of the host lies at /etc; nothing is made in it.
		m.note("%s is not there: the volume it would be in has none", f.Target)
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(target)
	place, err := m.root.place(target)
	if err != nil {
		return err
	}
	if _, volume := m.taken[place]; volume {
		return nil
	}
	source := f.Source
	if source == "" {
		source = m.pod.etcFile(f)
	}
	tree, err := cloneTree(unix.AT_FDCWD, source, false)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if f.Source != "" {
		if err := readOnly(tree, false); err != nil {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(target, &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return errs.Newf(errs.Usage, "the image has a folder there")
	}
	return moveTo(tree, target)
}

// provided says whether the rootfs has its own. An empty file counts as none:
// image builders leave those behind where they mounted theirs.
func (m *mounter) provided(target string) bool {
	st, err := m.root.stat(target)
	return err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > 0)
}
