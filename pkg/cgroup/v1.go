package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/limits"
)

// setQuotaV1 sets a CPU limit. v1 takes none above the parent's: then it is the
// parent's; and none below a child's: then the children are lowered first.
func setQuotaV1(dir string, want int64) (why string, err error) {
	err = writeQuotaV1(dir, want)
	if !errors.Is(err, unix.EINVAL) || want == limits.None {
		return "", err
	}
	parent, perr := milli(filepath.Dir(dir), false)
	if perr == nil && parent != limits.None && parent < want {
		return "it can't be above the pod's", writeQuotaV1(dir, parent)
	}
	if err := lowerChildren(dir, want); err != nil {
		return "", err
	}
	return "", writeQuotaV1(dir, want)
}

func lowerChildren(dir string, most int64) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		child := filepath.Join(dir, e.Name())
		if n, err := milli(child, false); err != nil || n == limits.None || n <= most {
			continue
		}
		if err := lowerChildren(child, most); err != nil {
			return err
		}
		if err := writeQuotaV1(child, most); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeQuotaV1 lifts the limit before it changes the period, as the pair that
// is there for a moment could be one that the kernel refuses.
func writeQuotaV1(dir string, milli int64) error {
	if milli == limits.None {
		return write(dir, "cpu.cfs_quota_us", "-1")
	}
	quota, period := limits.Quota(milli)
	now, err := number(filepath.Join(dir, "cpu.cfs_period_us"))
	if err != nil {
		return err
	}
	if now != period {
		if err := write(dir, "cpu.cfs_quota_us", "-1"); err != nil {
			return err
		}
		if err := write(dir, "cpu.cfs_period_us", strconv.FormatInt(period, 10)); err != nil {
			return err
		}
	}
	return write(dir, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10))
}
