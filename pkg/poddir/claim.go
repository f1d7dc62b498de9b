package poddir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
)

// claimAttr of a store's run folder is the path of the data folder whose pods
// are in there. It goes with the folder, when the last pod does.
const claimAttr = "trusted.rkt.data"

// Claim ties the names that a store has on this host, as long as it has pods
// with run folders, to its data folder. A data folder that was copied has the
// same id as the original and pods of the same UUIDs, so that it would find,
// and kill, the original's processes: it is refused with class Corrupt. One
// that was moved, or is reached by another path, is not.
//
// A store without a run folder has nothing that could be mixed up.
func Claim(storeID, data string) error {
	dir := filepath.Join(RunRoot(), storeID)
	for range 2 {
		owner, err := claimant(dir)
		switch {
		case errors.Is(err, unix.ENODATA):
			err = claim(dir, data, unix.XATTR_CREATE)
		case err != nil || owner == data:
		case isCopy(storeID, owner, data):
			err = errs.Newf(errs.Corrupt, "data folder %s: has the id %s of %s, which has pods: one was copied from the other", data, storeID, owner)
			return errs.WithHint(err, "while no pod of %s runs, \"rm %[1]s/store/id\" lets the next fetch, prepare or run give it an id of its own", data)
		default:
			err = claim(dir, data, 0) // the owner was moved here
		}
		if errors.Is(err, unix.EEXIST) {
			continue // another was first
		}
		if err != nil && !harmless(err) {
			return fmt.Errorf("claim %s: %w", dir, err)
		}
		return nil
	}
	return nil
}

// harmless are the errors of a folder that isn't there, and of a host where
// folders can't be claimed: it has to do without.
func harmless(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.EPERM, unix.EACCES, unix.EOPNOTSUPP} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func claimant(dir string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Lgetxattr(dir, claimAttr, buf)
	return string(buf[:max(n, 0)]), err
}

func claim(dir, data string, flags int) error {
	if err := fault.Step("run.claim"); err != nil {
		return err
	}
	return unix.Lsetxattr(dir, claimAttr, []byte(data), flags)
}

// isCopy says whether both data folders are there, with one id between them.
func isCopy(storeID, one, other string) bool {
	id, err := os.ReadFile(filepath.Join(one, "store", "id"))
	if err != nil || strings.TrimSpace(string(id)) != storeID {
		return false
	}
	a, err1 := os.Stat(one)
	b, err2 := os.Stat(other)
	return err1 == nil && err2 == nil && !os.SameFile(a, b)
}
