// Package store keeps verified images on disk. Its folder is
//
//	store/id                random, made once; every host-wide name carries it
//	store/version           of this layout
//	store/frozen            nothing is written here any more: see Use
//	store/gate, store/lock  see Hold
//	store/blobs/<alg>/<hex> manifests, configs, signatures, as they came
//	store/layers/<key>/     one unpacked layer: fs, tar-split.gz, residue.gz, meta.json
//	store/images/<id>.json  one verified image; <id>.used beside it: its mtime is the last use
//	store/names/            reference → image id; rebuildable from the images
//	store/tmp/<entry>/      what is being made or deleted; entry/lock is held meanwhile
//
// Invariants, at any time: a file or folder with its final name is complete and
// verified; an image's layers and blobs are there; what a pod's refs.json
// names is there. Hence the write order blob, layer, image, name (then pod),
// and the delete order (pod,) name, image, layer and blob. Counts are never
// kept: who needs a layer is read from the records.
package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// version of the layout. A store of a later one is refused.
const version = 1

// Store is an opened store. It holds no descriptor and no lock.
type Store struct {
	data   string
	root   string // of the store itself
	id     string
	frozen []*Store // see Use
	broken []error  // why others of those can't be used
	judged *sync.Map
}

type folder struct {
	path    string
	mode    fs.FileMode
	private bool // nobody else may get in: a setuid file in there must be out of reach
}

func folders(data string) []folder {
	store := filepath.Join(data, "store")
	list := []folder{{data, 0o755, false}, {store, 0o755, false}}
	for _, name := range []string{"blobs", "blobs/sha256", "blobs/sha512", "layers", "images", "names", "tmp"} {
		list = append(list, folder{filepath.Join(store, name), 0o700, true})
	}
	return append(list,
		folder{poddir.PodsDir(data), 0o700, true},
		folder{filepath.Join(data, "volumes"), 0o700, true})
}

// Open opens the store in the data folder and makes what is missing. It
// refuses folders that others than their owner can get into.
func Open(data string) (*Store, error) {
	data, err := filepath.Abs(data)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	// The last element gets its mode here, those above are the host's.
	if err := os.MkdirAll(filepath.Dir(data), 0o755); err != nil {
		return nil, openError(data, err)
	}
	for _, f := range folders(data) {
		if err := f.ensure(); err != nil {
			return nil, openError(data, err)
		}
	}
	s := ownStore(data)
	// In this order: a store with an id is complete.
	if err := s.ensureFile("version", strconv.Itoa(version)+"\n"); err != nil {
		return nil, openError(data, err)
	}
	if err := s.ensureFile("id", newID()+"\n"); err != nil {
		return nil, openError(data, err)
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	return s, s.checkPlace()
}

// OpenExisting opens the store only if it is there, and changes nothing. The
// error is of class NotFound if no store was ever made, and of class Denied if
// the caller may not look. Ordinary users can read the id only.
func OpenExisting(data string) (*Store, error) {
	data, err := filepath.Abs(data)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	s := ownStore(data)
	if err := s.load(); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return s, nil
	}
	if err := s.checkPlace(); err != nil {
		return nil, err
	}
	for _, f := range folders(data) {
		err := f.check()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue // who needs it will say so
		}
		if err != nil {
			return nil, openError(data, err)
		}
	}
	return s, nil
}

func ownStore(data string) *Store {
	return &Store{data: data, root: filepath.Join(data, "store"), judged: new(sync.Map)}
}

// ID is the store's own id, part of every host-wide name.
func (s *Store) ID() string { return s.id }

// Data is the absolute path of the data folder.
func (s *Store) Data() string { return s.data }

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.root}, elem...)...)
}

func (s *Store) load() error {
	text, err := os.ReadFile(s.path("version"))
	if err != nil {
		return openError(s.data, err)
	}
	if v, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || v < 1 {
		return errs.Newf(errs.Corrupt, "store: %s: %q is no version", s.path("version"), text)
	} else if v > version {
		return errs.WithHint(errs.Newf(errs.Unsupported, "store: %s: version %d, this rkt knows %d", s.path(), v, version),
			"use the rkt that made it, or a newer one")
	}
	text, err = os.ReadFile(s.path("id"))
	if err != nil {
		return openError(s.data, err)
	}
	s.id = strings.TrimSpace(string(text))
	// It becomes part of paths and names all over the host.
	if !regexp.MustCompile(`^[0-9a-f]{8,64}$`).MatchString(s.id) {
		return errs.Newf(errs.Corrupt, "store: %s: %q is no id", s.path("id"), s.id)
	}
	return nil
}

// ensureFile writes the file unless it is there. Of two that do so at once one
// wins, and both go on with what is there then. Until it has its name the file
// has none at all, so that a kill leaves nothing.
func (s *Store) ensureFile(name, text string) error {
	target := s.path(name)
	if _, err := os.Lstat(target); err == nil {
		return nil
	}
	if err := fault.Step("store.init"); err != nil {
		return err
	}
	f, err := os.OpenFile(s.path(), unix.O_TMPFILE|os.O_WRONLY, 0o644)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		return unfit(s.path(), "files without a name")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil { // whatever the umask is
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, target, unix.AT_SYMLINK_FOLLOW)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.LinkError{Op: "link", New: target, Err: err}
	}
	return atomicfile.SyncDir(s.path())
}

func newID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails, says package rand
	return hex.EncodeToString(b[:])
}

func (f folder) ensure() error {
	if err := fault.Step("store.mkdir"); err != nil {
		return err
	}
	err := os.Mkdir(f.path, f.mode)
	if errors.Is(err, fs.ErrExist) {
		return f.check()
	}
	if err != nil {
		return err
	}
	return f.keepMode()
}

func (f folder) check() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return errs.Newf(errs.Usage, "%s: not a folder", f.path)
	}
	bad := unix.S_IWGRP | unix.S_IWOTH
	if f.private {
		bad = 0o077
	}
	st := info.Sys().(*syscall.Stat_t)
	if int(st.Uid) == os.Geteuid() && st.Mode&uint32(bad) == 0 {
		return nil
	}
	err = errs.Newf(errs.Denied, "%s: owner %d, mode %04o: other users could reach or change what images bring",
		f.path, st.Uid, st.Mode&0o7777)
	return errs.WithHint(err, "chown %d %s && chmod %04o %[2]s", os.Geteuid(), f.path, f.mode)
}

func openError(data string, err error) error {
	switch {
	case errs.ClassOf(err) != errs.Internal:
		return fmt.Errorf("open store: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		return errs.Newf(errs.NotFound, "open store: %s: no store there: %w", data, err)
	case errors.Is(err, fs.ErrPermission):
		return errs.WithHint(errs.Newf(errs.Denied, "open store: %w", err), "run rkt as root")
	case errors.Is(err, unix.EROFS):
		return errs.Newf(errs.Denied, "open store: %w", err)
	case errors.Is(err, unix.ENOTDIR):
		return errs.Newf(errs.Usage, "open store: %w", err)
	default:
		return fmt.Errorf("open store: %w", err)
	}
}
