package network

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/proc"
)

// HostNS names the network namespace that this process is in, by its inode.
func HostNS() (uint64, error) { return netNSOf("self") }

func netNSOf(pid string) (uint64, error) {
	var st unix.Stat_t
	path := filepath.Join("/proc", pid, "ns/net")
	if err := unix.Stat(path, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Ino, nil
}

// checkHost refuses a release from elsewhere: what the record names would not be
// found here, be taken for released, and stay where it is. If no process is left
// in the namespace that the pod was attached to, nothing of it is there.
func checkHost(rec poddir.NetRecord) error {
	if rec.BootID != proc.BootID() || rec.HostNS == 0 {
		return nil
	}
	here, err := HostNS()
	if err != nil || here == rec.HostNS {
		return err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if ns, err := netNSOf(e.Name()); err == nil && ns == rec.HostNS {
			err := errs.Newf(errs.Denied, "the pod was started in another network namespace, net:[%d]", rec.HostNS)
			return errs.WithHint(err, "process %d is in it: %s", pid, fmt.Sprintf("\"nsenter --net=/proc/%d/ns/net rkt gc\"", pid))
		}
	}
	return nil
}
