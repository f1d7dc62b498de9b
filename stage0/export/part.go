package export

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/fault"
)

// partPrefix begins the temporary names of outputs, beside their places.
const partPrefix = ".rkt-export-"

// part is an output that is not whole yet. Its lock says that somebody is at
// work on it: one that nobody has locked was left by a command that was killed,
// and the next that writes to the same folder removes it.
type part struct {
	path   string
	lock   *os.File // the file or folder itself, by a descriptor of its own
	locked bool     // not where the file system has no locks: nothing is removed there
}

// newPart makes one in the folder that the output gets into.
func newPart(dir string, create func(path string) error) (*part, error) {
	if err := removeParts(dir); err != nil {
		return nil, err
	}
	for {
		p := &part{path: filepath.Join(dir, partPrefix+rand.Text())}
		if err := create(p.path); err != nil {
			return nil, err
		}
		mine, err := p.take()
		if err != nil {
			return nil, errors.Join(err, ignoreMissing(os.RemoveAll(p.path)))
		}
		if mine {
			return p, nil
		}
		// Another command saw it before it was locked, and has removed it.
	}
}

// take locks what is at the path, and says whether that is it still.
func (p *part) take() (bool, error) {
	fd, err := unix.Open(p.path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open %s: %w", p.path, err)
	}
	p.lock = os.NewFile(uintptr(fd), p.path)
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	p.locked = err == nil
	if errors.Is(err, unix.EWOULDBLOCK) {
		p.release()
		return false, nil
	}
	opened, err := p.lock.Stat()
	if err != nil {
		p.release()
		return false, fmt.Errorf("output %w", err)
	}
	if there, err := os.Lstat(p.path); err != nil || !os.SameFile(opened, there) {
		p.release()
		return false, ignoreMissing(err)
	}
	return true, nil
}

func (p *part) release() { _ = p.lock.Close() } // read only

// remove drops what is at the path: what was left of the part, or what the part
// took the place of.
func (p *part) remove() error { return ignoreMissing(os.RemoveAll(p.path)) }

// removeParts removes what killed commands left in a folder. What can't be
// looked at or removed stays: nothing depends on it.
func removeParts(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return ignoreMissing(err) // whoever makes something there says it better
	}
	names, _ := f.Readdirnames(-1) // as many as there are
	_ = f.Close()                  // read only
	for _, name := range names {
		p := &part{path: filepath.Join(dir, name)}
		if !strings.HasPrefix(name, partPrefix) || !p.ours() {
			continue
		}
		if free, err := p.take(); err != nil || !free {
			continue
		}
		var err error
		if p.locked {
			if err = fault.Step("export.sweep"); err == nil {
				_ = p.remove()
			}
		}
		p.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// ours says whether the part can be one of this user's: nobody else's file is
// removed, whatever it is called.
func (p *part) ours() bool {
	var st unix.Stat_t
	if err := unix.Lstat(p.path, &st); err != nil || int(st.Uid) != os.Geteuid() {
		return false
	}
	kind := st.Mode & unix.S_IFMT
	return kind == unix.S_IFREG || kind == unix.S_IFDIR
}
