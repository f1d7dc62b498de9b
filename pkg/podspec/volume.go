package podspec

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// The kinds of volume. The specification has the first two; the others are
// rkt's own.
const (
	VolumeHost   = "host"   // a folder, file or device of the host
	VolumeEmpty  = "empty"  // a folder that lives as long as the pod
	VolumeTmpfs  = "tmpfs"  // the same, in memory
	VolumeNamed  = "named"  // a folder that outlives the pod
	VolumeImage  = "image"  // the files of an image, read-only
	VolumeSecret = "secret" // files that are never written to a disk
)

// The propagation of mounts into a host volume.
const (
	PropagationPrivate = "private" // what the host mounts below it later is not seen
	PropagationSlave   = "slave"   // what the host mounts and unmounts below it is
	propagationShared  = "shared"
)

// Volume is a folder or file that apps of the pod mount.
type Volume struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Source is, by kind: host: an absolute path; named: the volume's name on
	// the host, "" means Name; image: its id; secret: the absolute path of a
	// file, or of a folder of files.
	Source         string   `json:"source,omitempty"`
	Recursive      *bool    `json:"recursive,omitempty"`      // host: nil means true
	ReadOnly       *bool    `json:"readOnly,omitempty"`       // nil: as the mount point says
	Mode           string   `json:"mode,omitempty"`           // octal; of the folder ("" means 0755, tmpfs 1777), or of a secret's files ("" means 0400)
	UID            *int     `json:"uid,omitempty"`            // nil means 0; secret: the app's user
	GID            *int     `json:"gid,omitempty"`            // nil means 0; secret: the app's group
	Size           string   `json:"size,omitempty"`           // tmpfs: "" means half of the memory
	Propagation    string   `json:"propagation,omitempty"`    // host: "" means private where it is mounted read-only, else slave
	FollowSymlinks bool     `json:"followSymlinks,omitempty"` // host: the source may have symlinks in it
	SELinux        string   `json:"selinux,omitempty"`        // host: the source gets a label that fits z: all pods, Z: this one
	IDMap          *bool    `json:"idmap,omitempty"`          // host, named: ids in it are the pod's own, not the host's; nil: named's are
	Seed           *bool    `json:"seed,omitempty"`           // empty, named: begin with what the image has there; nil: named does
	Credentials    []string `json:"credentials,omitempty"`    // secret: names of files in $CREDENTIALS_DIRECTORY; none and no source: all
}

// Mount puts a volume at a path of the app.
type Mount struct {
	Volume    string  `json:"volume"`
	Path      string  `json:"path"`
	AppVolume *Volume `json:"appVolume,omitempty"`
	SubPath   string  `json:"subPath,omitempty"`  // what of the volume is mounted, "" means all
	ReadOnly  bool    `json:"readOnly,omitempty"` // whatever the volume says
	Nested    bool    `json:"nested,omitempty"`   // that it lies inside another volume is meant
}

// kindFields are the fields besides name, kind and readOnly that a volume of
// the kind may have.
var kindFields = map[string][]string{
	VolumeHost:   {"source", "recursive", "propagation", "followSymlinks", "selinux", "idmap"},
	VolumeEmpty:  {"mode", "uid", "gid", "seed"},
	VolumeTmpfs:  {"mode", "uid", "gid", "size"},
	VolumeNamed:  {"source", "mode", "uid", "gid", "seed", "idmap"},
	VolumeImage:  {"source"},
	VolumeSecret: {"source", "mode", "uid", "gid", "credentials"},
}

// VolumeKinds lists the kinds, for messages.
func VolumeKinds() []string {
	return []string{VolumeHost, VolumeEmpty, VolumeTmpfs, VolumeNamed, VolumeImage, VolumeSecret}
}

// given are the fields that are set, of those that not every kind has.
func (v *Volume) given() []string {
	var list []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"source", v.Source != ""},
		{"recursive", v.Recursive != nil},
		{"mode", v.Mode != ""},
		{"uid", v.UID != nil},
		{"gid", v.GID != nil},
		{"size", v.Size != ""},
		{"propagation", v.Propagation != ""},
		{"followSymlinks", v.FollowSymlinks},
		{"selinux", v.SELinux != ""},
		{"idmap", v.IDMap != nil},
		{"seed", v.Seed != nil},
		{"credentials", len(v.Credentials) > 0},
	} {
		if f.set {
			list = append(list, f.name)
		}
	}
	return list
}

// Validate checks the volume; the error begins with the field's name.
func (v *Volume) Validate() error {
	if err := appc.CheckName(v.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	allowed, ok := kindFields[v.Kind]
	if !ok {
		return errs.Newf(errs.Usage, "kind: %q: none of %s", v.Kind, strings.Join(VolumeKinds(), ", "))
	}
	for _, field := range v.given() {
		if !slices.Contains(allowed, field) {
			return errs.Newf(errs.Usage, "%s: not for a volume of kind %s", field, v.Kind)
		}
	}
	if err := v.checkSource(); err != nil {
		return err
	}
	if err := v.checkHost(); err != nil {
		return err
	}
	if v.Mode != "" {
		if m, err := strconv.ParseUint(v.Mode, 8, 32); err != nil || m > 0o7777 {
			return errs.Newf(errs.Usage, "mode: %q: not an octal mode", v.Mode)
		}
	}
	for name, id := range map[string]*int{"uid": v.UID, "gid": v.GID} {
		if id != nil && (*id < 0 || int64(*id) > 1<<32-2) {
			return errs.Newf(errs.Usage, "%s: %d: not an id", name, *id)
		}
	}
	if v.Size != "" {
		if _, err := v.SizeBytes(); err != nil {
			return fmt.Errorf("size: %w", err)
		}
	}
	return nil
}

func (v *Volume) checkSource() error {
	var err error
	switch v.Kind {
	case VolumeHost:
		err = appc.CheckAbs(v.Source)
	case VolumeImage:
		err = appc.CheckImageID(v.Source)
	case VolumeNamed:
		err = CheckVolumeName(v.NamedSource())
	case VolumeSecret:
		if v.Source != "" && len(v.Credentials) > 0 {
			return errs.Newf(errs.Usage, "source, credentials: only one of them may be given")
		}
		if v.Source != "" {
			err = appc.CheckAbs(v.Source)
		}
		for _, name := range v.Credentials {
			if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > 255 || !utf8.ValidString(name) {
				return errs.Newf(errs.Usage, "credentials: %q: not the name of a file", name)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	return nil
}

// checkHost refuses by name what no pod can have.
func (v *Volume) checkHost() error {
	switch v.Propagation {
	case "", PropagationPrivate, PropagationSlave:
	case propagationShared:
		return errs.WithHint(errs.Newf(errs.Unsupported, "propagation: shared: no mount of a pod ever reaches the host"),
			"%s lets the pod see the host's mounts", PropagationSlave)
	default:
		return errs.Newf(errs.Usage, "propagation: %q: none of %s, %s, %s", v.Propagation, PropagationPrivate, PropagationSlave, propagationShared)
	}
	switch v.SELinux {
	case "", "z", "Z":
		return nil
	}
	return errs.Newf(errs.Usage, "selinux: %q: neither z (for all pods) nor Z (for this pod alone)", v.SELinux)
}

// CheckVolumeName says whether s can be the name of a named volume. It is the
// name of a folder, and no such name begins with a dot.
func CheckVolumeName(s string) error {
	if err := appc.StrictName(s); err != nil || len(s) > maxVolumeName {
		return errs.Newf(errs.Usage, "volume name %q: not lower-case letters, digits and single hyphens between them, %d at the most", s, maxVolumeName)
	}
	return nil
}

// maxVolumeName leaves room for what a file name may need beside it.
const maxVolumeName = 200

// NamedSource is the name on the host of a named volume.
func (v *Volume) NamedSource() string {
	if v.Source == "" {
		return v.Name
	}
	return v.Source
}

// SizeBytes is the size of a tmpfs in bytes, 0 if none is given.
func (v *Volume) SizeBytes() (int64, error) {
	if v.Size == "" {
		return 0, nil
	}
	q, err := appc.ParseQuantity(v.Size)
	if err != nil {
		return 0, err
	}
	n, err := q.Ceil()
	if err == nil && n <= 0 {
		err = errs.Newf(errs.Usage, "%q: not more than 0", v.Size)
	}
	return n, err
}

// Every calls f for each volume of the pod, those of single mounts too.
func (p *Pod) Every(f func(*Volume) error) error {
	return p.each(f, func(*Volume) bool { return true })
}

// EachMounted is Every for the volumes that an app of a reified pod mounts.
// The others are of no interest to anyone.
func (p *Pod) EachMounted(f func(*Volume) error) error {
	return p.each(f, func(v *Volume) bool {
		return slices.ContainsFunc(p.Apps, func(a App) bool {
			return slices.ContainsFunc(a.Mounts, func(m Mount) bool { return m.AppVolume == nil && m.Volume == v.Name })
		})
	})
}

// each takes those of the pod's volumes that are wanted, and all of single
// mounts.
func (p *Pod) each(f func(*Volume) error, wanted func(*Volume) bool) error {
	for i := range p.Volumes {
		if !wanted(&p.Volumes[i]) {
			continue
		}
		if err := f(&p.Volumes[i]); err != nil {
			return err
		}
	}
	for i := range p.Apps {
		for _, m := range p.Apps[i].Mounts {
			if m.AppVolume == nil {
				continue
			}
			if err := f(m.AppVolume); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkSubPath wants a path that names something inside: what symlinks in the
// volume make of it is seen when it is mounted.
func checkSubPath(s string) error {
	if path.IsAbs(s) || path.Clean(s) == "." || strings.Contains("/"+s+"/", "/../") || strings.Contains(s, "\x00") || !utf8.ValidString(s) {
		return errs.Newf(errs.Usage, "%q: not a path inside the volume", s)
	}
	return nil
}
