package cgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
)

// FreezePath stops all processes in a cgroup2 folder and below it where they
// are, or lets them go on, and returns once that is so. What is frozen can
// still be killed. The v1 freezer is not needed for it: each process is in the
// cgroup2 hierarchy too.
func FreezePath(ctx context.Context, path string, on bool) error {
	if err := fault.Step("cgroup.freeze"); err != nil {
		return err
	}
	value := "0"
	if on {
		value = "1"
	}
	if err := os.WriteFile(filepath.Join(path, "cgroup.freeze"), []byte(value), 0); err != nil {
		return fmt.Errorf("freeze cgroup: %w", err)
	}
	ok, err := waitEvents(ctx, path, "frozen "+value)
	if err == nil && !ok {
		err = errs.Newf(errs.Busy, "cgroup %s: some of its processes don't stop", path)
	}
	return err
}
