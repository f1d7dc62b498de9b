// Package volume keeps named volumes: folders that outlive the pods that mount
// them. Who holds one is read from the pods' references; it is made before the
// first pod of it is prepared and removed only when somebody asks for that and
// no pod holds it.
//
// A folder with a volume's name is a whole volume: it is made under a name that
// no volume can have, and gets such a name again before it is deleted. Both
// happen with the store's lock, so that who has it alone may remove what others
// left half done.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
	"github.com/rkt-pods/rkt/stage0/store"
)

// Volumes are the named volumes of one data folder.
type Volumes struct{ store *store.Store }

// Of returns the volumes that lie beside a store.
func Of(s *store.Store) Volumes { return Volumes{s} }

// Record is volume.json.
type Record struct {
	Name      string            `json:"name"`
	CreatedAt time.Time         `json:"createdAt"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// Volume is a named volume as it is found.
type Volume struct {
	Record
	Path     string    `json:"path"`     // of its files
	LastUsed time.Time `json:"lastUsed"` // when a pod of it was made or removed last
	Fresh    bool      `json:"fresh"`    // no pod has used it yet
	Pods     []string  `json:"pods"`     // those that hold it
}

// Held is which pods hold which volumes.
type Held struct {
	Volumes map[string][]string
	// Unknown are pods whose references can't be read; they hold all volumes.
	Unknown []string
}

// HeldFunc reads what the pods hold. It is called with the store's lock held.
type HeldFunc func() (Held, error)

// by returns the pods that hold the volume.
func (h Held) by(name string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(h.Volumes[name], h.Unknown))))
}

// prefixes of what is no volume yet, or any more.
const (
	making  = ".new-"
	leaving = ".rm-"
)

// Spec says how a volume is to be made.
type Spec struct {
	Record
	Mode     os.FileMode
	UID, GID int
	Seed     bool // the first pod fills it with its image's content
}

// SpecOf reads from a pod's volume how it is to be made.
func SpecOf(v *podspec.Volume) (Spec, error) {
	s := Spec{Record: Record{Name: v.NamedSource()}, Mode: 0o755, Seed: v.Seed == nil || *v.Seed}
	if v.Mode != "" {
		n, err := strconv.ParseUint(v.Mode, 8, 12)
		if err != nil {
			return s, errs.Newf(errs.Usage, "mode %q: not octal", v.Mode)
		}
		s.Mode = os.FileMode(n)
	}
	if v.UID != nil {
		s.UID = *v.UID
	}
	if v.GID != nil {
		s.GID = *v.GID
	}
	return s, podspec.CheckVolumeName(s.Name)
}

// Ensure makes the volume if it is not there. The caller has the store's lock,
// shared, and a pod whose references name the volume.
func (v Volumes) Ensure(s Spec) error {
	dir := poddir.NamedVolume(v.store.Data(), s.Name)
	err := v.make(s)
	if errors.Is(err, fs.ErrExist) {
		dir.Touch()
		return nil
	}
	return err
}

// Create makes a volume that must not be there yet.
func (v Volumes) Create(ctx context.Context, s Spec) error {
	hold, err := v.store.Hold(ctx)
	if err != nil {
		return err
	}
	defer hold.Close()
	err = v.make(s)
	if errors.Is(err, fs.ErrExist) {
		return errs.WithHint(errs.Newf(errs.Usage, "volume %s: is there already", s.Name), "\"rkt volume inspect %s\" shows it", s.Name)
	}
	return err
}

// make returns fs.ErrExist if the volume is there.
func (v Volumes) make(s Spec) error {
	if err := podspec.CheckVolumeName(s.Name); err != nil {
		return err
	}
	dir := poddir.NamedVolume(v.store.Data(), s.Name)
	if _, err := os.Lstat(string(dir)); err == nil {
		return fs.ErrExist
	}
	if err := fault.Step("volume.create"); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(poddir.VolumesDir(v.store.Data()), making)
	if err != nil {
		return fmt.Errorf("make volume: %w", err)
	}
	if err := s.fill(poddir.NamedDir(tmp)); err != nil {
		return errors.Join(fmt.Errorf("make volume %s: %w", s.Name, err), os.RemoveAll(tmp))
	}
	err = unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, string(dir), unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return errors.Join(fs.ErrExist, os.RemoveAll(tmp))
	}
	if err != nil {
		return errors.Join(&os.LinkError{Op: "rename", Old: tmp, New: string(dir), Err: err}, os.RemoveAll(tmp))
	}
	return atomicfile.SyncDir(poddir.VolumesDir(v.store.Data()))
}

func (s Spec) fill(dir poddir.NamedDir) error {
	if err := os.Mkdir(dir.Files(), 0o700); err != nil {
		return err
	}
	// chown clears setuid and setgid bits, so the mode comes after it.
	if err := os.Lchown(dir.Files(), s.UID, s.GID); err != nil {
		return err
	}
	if err := unix.Chmod(dir.Files(), uint32(s.Mode)); err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	if s.Seed {
		if err := os.WriteFile(dir.Fresh(), nil, 0o600); err != nil {
			return err
		}
	}
	rec := s.Record
	rec.CreatedAt = time.Now().UTC()
	return atomicfile.WriteJSON(dir.Record(), rec, 0o600, atomicfile.Synced) // and the folder with it
}

// List returns all volumes by name, those whose record is damaged too.
func (v Volumes) List(held HeldFunc) ([]Volume, error) {
	names, err := v.names()
	if err != nil {
		return nil, err
	}
	h, err := held()
	if err != nil {
		return nil, err
	}
	list := []Volume{}
	for _, name := range names {
		one, err := v.read(name, h)
		if errs.Is(err, errs.NotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

// Get returns one volume.
func (v Volumes) Get(name string, held HeldFunc) (Volume, error) {
	if err := podspec.CheckVolumeName(name); err != nil {
		return Volume{}, err
	}
	h, err := held()
	if err != nil {
		return Volume{}, err
	}
	return v.read(name, h)
}

func (v Volumes) read(name string, h Held) (Volume, error) {
	dir := poddir.NamedVolume(v.store.Data(), name)
	one := Volume{Path: dir.Files(), Pods: h.by(name)}
	info, err := os.Lstat(string(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return one, errs.WithHint(errs.Newf(errs.NotFound, "volume %s: not there", name), "\"rkt volume list\" shows the volumes")
	}
	if err != nil {
		return one, err
	}
	one.LastUsed = info.ModTime()
	// A volume is its files; without a readable record it is still one.
	if err := atomicfile.ReadJSON(dir.Record(), &one.Record); err != nil {
		one.Record = Record{}
	}
	one.Name = name
	if info, err := os.Lstat(dir.Record()); err == nil {
		one.LastUsed = info.ModTime()
	}
	_, err = os.Lstat(dir.Fresh())
	one.Fresh = err == nil
	if one.Pods == nil {
		one.Pods = []string{}
	}
	return one, nil
}

func (v Volumes) names() ([]string, error) {
	entries, err := os.ReadDir(poddir.VolumesDir(v.store.Data()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && podspec.CheckVolumeName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Remove removes a volume with all its files. It is of class Busy if a pod
// holds it.
func (v Volumes) Remove(ctx context.Context, name string, held HeldFunc) error {
	if err := podspec.CheckVolumeName(name); err != nil {
		return err
	}
	gone, err := v.takeOut(ctx, func(h Held) ([]string, error) {
		one, err := v.read(name, h)
		if err != nil {
			return nil, err
		}
		if len(one.Pods) > 0 {
			err := errs.Newf(errs.Busy, "volume %s: in use by pod %s", name, strings.Join(one.Pods, ", "))
			return nil, errs.WithHint(err, "\"rkt rm\" removes an exited pod, \"rkt gc\" all of them")
		}
		return []string{name}, nil
	}, held)
	return errors.Join(err, remove(gone))
}

// Rule says which volumes are due: those that no pod holds, were not used
// within the grace and have all the labels.
type Rule struct {
	Grace  time.Duration
	Labels map[string]string
	Now    time.Time
}

func (r Rule) due(one Volume) bool {
	return len(one.Pods) == 0 && one.HasLabels(r.Labels) && !one.LastUsed.Add(r.Grace).After(r.Now)
}

// Due lists the volumes that Collect would remove.
func (v Volumes) Due(r Rule, held HeldFunc) ([]string, error) {
	h, err := held()
	if err != nil {
		return nil, err
	}
	return v.due(r, h)
}

func (v Volumes) due(r Rule, h Held) ([]string, error) {
	names, err := v.names()
	if err != nil {
		return nil, err
	}
	due := []string{}
	for _, name := range names {
		one, err := v.read(name, h)
		if err != nil {
			return nil, err
		}
		if r.due(one) {
			due = append(due, name)
		}
	}
	return due, nil
}

// Collect removes what is due and returns the names.
func (v Volumes) Collect(ctx context.Context, r Rule, held HeldFunc) ([]string, error) {
	due := []string{}
	gone, err := v.takeOut(ctx, func(h Held) (_ []string, err error) {
		due, err = v.due(r, h)
		return due, err
	}, held)
	if err != nil {
		due = []string{}
	}
	return due, errors.Join(err, remove(gone))
}

// Sweep removes what killed commands left of volumes.
func (v Volumes) Sweep(ctx context.Context) error {
	left, err := filepath.Glob(filepath.Join(poddir.VolumesDir(v.store.Data()), ".*"))
	if err != nil || len(left) == 0 {
		return err // as nearly always: no lock is taken for it
	}
	gone, err := v.takeOut(ctx, func(Held) ([]string, error) { return nil, nil }, func() (Held, error) { return Held{}, nil })
	return errors.Join(err, remove(gone))
}

// takeOut renames the volumes that pick chooses, and returns the folders that
// nobody can see or use any more, those of killed commands too.
func (v Volumes) takeOut(ctx context.Context, pick func(Held) ([]string, error), held HeldFunc) (gone []string, err error) {
	excl, err := v.store.Exclude(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, excl.Close()) }()
	top := poddir.VolumesDir(v.store.Data())
	for _, prefix := range []string{making, leaving} {
		left, err := filepath.Glob(filepath.Join(top, prefix+"*"))
		if err != nil {
			return nil, err
		}
		gone = append(gone, left...)
	}
	h, err := held()
	if err != nil {
		return gone, err
	}
	names, err := pick(h)
	if err != nil || len(names) == 0 {
		return gone, err
	}
	for _, name := range names {
		trash, err := os.MkdirTemp(top, leaving)
		if err != nil {
			return gone, err
		}
		gone = append(gone, trash)
		if err := atomicfile.Rename("volume.remove", filepath.Join(top, name), filepath.Join(trash, name), atomicfile.Renamed); err != nil {
			return gone, fmt.Errorf("volume %s: %w", name, err)
		}
	}
	return gone, atomicfile.SyncDir(top)
}

func remove(gone []string) error {
	var all error
	for _, path := range gone {
		if err := fault.Step("volume.delete"); err != nil {
			return errors.Join(all, err)
		}
		all = errors.Join(all, os.RemoveAll(path))
	}
	return all
}

// HasLabels says whether the volume has all the labels.
func (v Volume) HasLabels(want map[string]string) bool {
	for k, val := range want {
		if got, ok := v.Labels[k]; !ok || got != val {
			return false
		}
	}
	return true
}

// LabelList lists labels as NAME=VALUE.
func LabelList(labels map[string]string) []string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, k+"="+labels[k])
	}
	return list
}

// FormatLabels is LabelList in one word.
func FormatLabels(labels map[string]string) string { return strings.Join(LabelList(labels), ",") }
