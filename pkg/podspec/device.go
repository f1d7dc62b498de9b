package podspec

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// Annotations of an app for which the specification has no field.
const (
	AnnDevices = "rkt/devices" // a comma-separated list of what ParseDevice reads
	AnnUmask   = "rkt/umask"   // octal, "" means 0022
)

// Device is a device of the host that an app asks for.
type Device struct {
	CDI    string // vendor.com/class=name, resolved where the pod runs; "" if a path is given
	Source string // on the host: a device, or a folder of devices
	Target string // in the app, below /dev
	Access string // "rwm" or a part of it
}

// ParseDevice reads VENDOR/CLASS=NAME, as the Container Device Interface names
// devices, or PATH[:TARGET][:ACCESS].
func ParseDevice(s string) (Device, error) {
	bad := errs.WithHint(errs.Newf(errs.Usage, "device %q: neither PATH[:TARGET][:rwm] nor VENDOR/CLASS=NAME", s), "for example /dev/fuse, /dev/sdb:/dev/disk:r, or vendor.com/gpu=0")
	if !strings.HasPrefix(s, "/") {
		if !isCDI(s) {
			return Device{}, bad
		}
		return Device{CDI: s}, nil
	}
	d := Device{Access: "rwm"}
	parts := strings.Split(s, ":")
	if n := len(parts); n > 1 && isAccess(parts[n-1]) {
		d.Access, parts = parts[n-1], parts[:n-1]
	}
	if len(parts) > 2 || strings.Contains(s, "\x00") {
		return Device{}, bad
	}
	d.Source = path.Clean(parts[0])
	d.Target = d.Source
	if len(parts) == 2 {
		d.Target = path.Clean(parts[1])
	}
	if !strings.HasPrefix(d.Target, "/dev/") {
		return Device{}, errs.Newf(errs.Usage, "device %q: %s: not below /dev", s, d.Target)
	}
	return d, nil
}

func (d Device) String() string {
	if d.CDI != "" {
		return d.CDI
	}
	return fmt.Sprintf("%s:%s:%s", d.Source, d.Target, d.Access)
}

// Devices are those that the app asks for.
func (a *App) Devices() ([]Device, error) {
	text, _ := a.Annotations.Get(AnnDevices)
	var list []Device
	for s := range strings.SplitSeq(text, ",") {
		if s == "" {
			continue
		}
		d, err := ParseDevice(s)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// ParseUmask reads an octal mask of permission bits.
func ParseUmask(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 {
		return 0, errs.Newf(errs.Usage, "umask %q: not an octal mask such as 0027", s)
	}
	return uint32(n), nil
}

// checkOwn checks the annotations of this file.
func (a *App) checkOwn() error {
	if _, err := a.Devices(); err != nil {
		return fmt.Errorf("annotations: %s: %w", AnnDevices, err)
	}
	if s, ok := a.Annotations.Get(AnnUmask); ok {
		if _, err := ParseUmask(s); err != nil {
			return fmt.Errorf("annotations: %s: %w", AnnUmask, err)
		}
	}
	return nil
}

func isAccess(s string) bool {
	return s != "" && len(s) <= 3 && strings.Trim(s, "rwm") == ""
}

// isCDI checks the form only: letters, digits and a few marks, of which the
// vendor has a dot.
func isCDI(s string) bool {
	kind, name, ok := strings.Cut(s, "=")
	vendor, class, ok2 := strings.Cut(kind, "/")
	word := func(s, marks string) bool {
		for _, c := range s {
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(marks, c)) {
				return false
			}
		}
		return s != ""
	}
	return ok && ok2 && word(vendor, "_-.") && word(class, "_-") && word(name, "_-.:")
}
