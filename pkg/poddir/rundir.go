package poddir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
)

// MakeRunDir makes the pod's run folder and returns its path. Anyone may pass
// through to the summary, only root may list it.
func MakeRunDir(storeID, uuid string) (string, error) {
	dir := RunDir(storeID, uuid)
	if err := fault.Step("run.mkdir"); err != nil {
		return "", err
	}
	// Whoever collects the last pod of the store removes the parent: then it
	// is made again.
	var err error
	for range 100 {
		for _, d := range []struct {
			path string
			mode fs.FileMode
		}{{RunRoot(), 0o755}, {filepath.Dir(dir), 0o755}, {dir, 0o711}} {
			if err = mkdir(d.path, d.mode); err != nil {
				break
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, unix.EROFS) {
		err = errs.WithHint(err, "rkt keeps what belongs to this boot in %s: mount a tmpfs there, or on %s", RunRoot(), filepath.Dir(RunRoot()))
	}
	if err != nil {
		return "", fmt.Errorf("run folder: %w", err)
	}
	return dir, nil
}

// WriteSummary replaces the pod's summary, readable for everyone.
func WriteSummary(storeID string, s Summary) error {
	path := filepath.Join(RunDir(storeID, s.UUID), SummaryFile)
	return atomicfile.WriteJSON(path, s, 0o644, atomicfile.Renamed)
}

func mkdir(path string, mode fs.FileMode) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, mode) // whatever the umask is
}
