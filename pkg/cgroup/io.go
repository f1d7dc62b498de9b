package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/limits"
)

// ioWeight: which file there is depends on what the kernel was built with and
// on the scheduler of the disks.
func (a *applier) ioWeight(want limits.Set) error {
	if want.IOWeight == nil {
		return nil
	}
	asked := limits.Number(*want.IOWeight)
	dir, v2, err := a.group.control(a.ioController())
	if err != nil {
		return a.ignored(limits.NameIOWeight, asked, err)
	}
	files := []string{"blkio.bfq.weight", "blkio.weight"}
	if v2 {
		files = []string{"io.weight", "io.bfq.weight"}
	}
	for _, file := range files {
		err := write(dir, file, asked)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return a.ignored(limits.NameIOWeight, asked, err)
		}
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return fmt.Errorf("%s: read back: %w", limits.NameIOWeight, err)
		}
		line, _, _ := strings.Cut(string(data), "\n")
		got := strings.TrimPrefix(strings.TrimSpace(line), "default ")
		r := limits.Result{Name: limits.NameIOWeight, State: limits.Enforced, Asked: asked, Value: got}
		if got != asked {
			r.State, r.Why = limits.Changed, "the kernel holds another value"
		}
		a.add(r)
		return nil
	}
	a.ignore(limits.NameIOWeight, asked, "this kernel has no weights for disks")
	return nil
}

func (a *applier) ioController() string {
	if _, v1 := a.group.v1("blkio"); v1 {
		return "blkio"
	}
	return "io"
}

func (a *applier) io(want limits.Set) error {
	if len(want.IO) == 0 {
		return nil
	}
	dir, v2, err := a.group.control(a.ioController())
	for _, device := range want.Devices() {
		bounds := want.IO[device]
		asked := device + " " + bounds.String()
		if err == nil {
			err := a.ioDevice(dir, v2, device, bounds)
			if err == nil {
				continue
			}
			if err := a.ignored(limits.NameIOLimit, asked, err); err != nil {
				return err
			}
			continue
		}
		if err := a.ignored(limits.NameIOLimit, asked, err); err != nil {
			return err
		}
	}
	if err == nil && !v2 {
		return a.group.refreshThrottle()
	}
	return nil
}

// ioDevice bounds one device, or all disks. Partitions have no limits.
func (a *applier) ioDevice(dir string, v2 bool, device string, bounds limits.IO) error {
	numbers, err := devices(device)
	if err != nil {
		return err
	}
	r := limits.Result{Name: limits.NameIOLimit, State: limits.Enforced, Asked: device + " " + bounds.String()}
	done := 0
	for _, number := range numbers {
		var got limits.IO
		if v2 {
			got, err = ioMax(dir, number, bounds)
		} else {
			got, err = throttle(dir, number, bounds)
		}
		if device == limits.AllDevices && (errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP)) {
			continue // it went away, or knows no limits
		}
		if err != nil {
			return err
		}
		done++
		r.Value = number + " " + got.String()
		if got.String() != bounds.String() {
			r.State, r.Why = limits.Changed, "the kernel holds another value"
		}
	}
	switch {
	case done == 0:
		return &missing{"there is no disk that has limits"}
	case device == limits.AllDevices && r.State == limits.Enforced:
		r.Value = fmt.Sprintf("%d disks %s", done, bounds.String())
	}
	if !v2 && r.State == limits.Enforced {
		r.State, r.Why = limits.Changed, "cgroup v1 counts what is read, and written without the page cache, and each process group of the pod by itself"
	}
	a.add(r)
	return nil
}

// devices returns MAJOR:MINOR of a device, or of all disks.
func devices(name string) ([]string, error) {
	if name == limits.AllDevices {
		return disks()
	}
	number := name
	if strings.HasPrefix(name, "/") {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			return nil, &missing{name + ": " + err.Error()}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFBLK {
			return nil, &missing{name + ": not a block device"}
		}
		number = fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
	sys := filepath.Join("/sys/dev/block", number)
	if _, err := os.Stat(sys); err != nil {
		return nil, &missing{name + ": no such block device"}
	}
	if _, err := os.Stat(filepath.Join(sys, "partition")); err == nil {
		return nil, &missing{name + ": a partition; limits are those of a whole disk"}
	}
	return []string{number}, nil
}

// disks lists what has a size: the others are loop devices and their like that
// nothing is behind yet.
func disks() ([]string, error) {
	entries, err := os.ReadDir("/sys/block")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		dir := filepath.Join("/sys/block", e.Name())
		if size, err := number(filepath.Join(dir, "size")); err != nil || size == 0 {
			continue
		}
		if data, err := os.ReadFile(filepath.Join(dir, "dev")); err == nil {
			all = append(all, strings.TrimSpace(string(data)))
		}
	}
	return all, nil
}

// ioMax writes and reads a line of io.max.
func ioMax(dir, device string, bounds limits.IO) (limits.IO, error) {
	if err := write(dir, "io.max", device+" "+bounds.String()); err != nil {
		return limits.IO{}, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "io.max"))
	if err != nil {
		return limits.IO{}, err
	}
	var got limits.IO
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != device {
			continue
		}
		for _, pair := range f[1:] {
			key, value, _ := strings.Cut(pair, "=")
			i := slices.Index(limits.IOKeys(), key)
			if i < 0 || *bounds.Values()[i] == nil {
				continue // nothing was asked of it
			}
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				n = limits.None
			}
			*got.Values()[i] = &n
		}
	}
	// A device without any limit has no line.
	for i, v := range got.Values() {
		if want := *bounds.Values()[i]; *v == nil && want != nil {
			*v = new(int64(limits.None))
		}
	}
	return got, nil
}

// throttleFiles are those of v1, in the order of limits.IOKeys.
var throttleFiles = []string{
	"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
	"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
}

// throttle writes and reads limits of v1, where 0 lifts one.
func throttle(dir, device string, bounds limits.IO) (limits.IO, error) {
	var got limits.IO
	for i, v := range bounds.Values() {
		if *v == nil {
			continue
		}
		n := max(**v, 0)
		if err := write(dir, throttleFiles[i], device+" "+strconv.FormatInt(n, 10)); err != nil {
			return got, err
		}
		*got.Values()[i] = new(int64(limits.None))
		if held, ok := throttled(dir, throttleFiles[i])[device]; ok {
			*got.Values()[i] = &held
		}
	}
	return got, nil
}

// throttled reads a file of lines "MAJOR:MINOR value".
func throttled(dir, file string) map[string]int64 {
	all := map[string]int64{}
	for device, n := range fields(filepath.Join(dir, file)) {
		all[device] = int64(min(n, 1<<63-1))
	}
	return all
}

// InheritThrottle gives a leaf the disk limits of its app and pod: v1 bounds
// the processes of each cgroup by themselves, whatever is set above them.
func (g Group) InheritThrottle() error {
	leaf, ok := g.v1("blkio")
	if !ok {
		return nil
	}
	for _, file := range throttleFiles {
		want := throttled(filepath.Dir(leaf), file)
		for device, n := range throttled(filepath.Dir(filepath.Dir(leaf)), file) {
			if own, ok := want[device]; !ok || n < own {
				want[device] = n
			}
		}
		have := throttled(leaf, file)
		for device := range have {
			if _, ok := want[device]; !ok {
				want[device] = 0
			}
		}
		for device, n := range want {
			if have[device] == n {
				continue
			}
			err := write(leaf, file, device+" "+strconv.FormatInt(n, 10))
			if err != nil && !errors.Is(err, unix.ENODEV) {
				return fmt.Errorf("limit disks: %w", err)
			}
		}
	}
	return nil
}

// refreshThrottle lets the leaves below an app's cgroup, or the pod's, have
// what has changed in it.
func (g Group) refreshThrottle() error {
	dir, _ := g.v1("blkio")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		sub := g.Below(e.Name())
		if filepath.Base(g.rel) == Apps {
			err = sub.refreshThrottle()
		} else {
			err = sub.InheritThrottle()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
