package prepare

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/kube"
)

// TestHostPath asks for every type at a place of every kind.
func TestHostPath(t *testing.T) {
	dir := t.TempDir()
	file, socket, link := filepath.Join(dir, "file"), filepath.Join(dir, "socket"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fits := map[string][]kube.HostPathType{
		dir:         {kube.Directory, kube.DirectoryOrCreate},
		link:        {kube.Directory, kube.DirectoryOrCreate},
		file:        {kube.File, kube.FileOrCreate},
		socket:      {kube.Socket},
		"/dev/null": {kube.CharDevice},
	}
	for path, types := range fits {
		for _, typ := range []kube.HostPathType{
			kube.AnyPath, kube.Directory, kube.DirectoryOrCreate, kube.File, kube.FileOrCreate, kube.Socket, kube.CharDevice, kube.BlockDevice,
		} {
			want := typ == kube.AnyPath
			for _, fit := range types {
				want = want || typ == fit
			}
			err := hostPath(kube.HostPath{Path: path, Type: typ})
			if want != (err == nil) || err != nil && (!errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), path+": is no "+string(typ))) {
				t.Errorf("%s as %s: %v", path, typ, err)
			}
		}
	}
}

// TestHostPathCreate: only what may be made is.
func TestHostPathCreate(t *testing.T) {
	dir := t.TempDir()
	for typ, mode := range map[kube.HostPathType]os.FileMode{kube.DirectoryOrCreate: os.ModeDir | 0o755, kube.FileOrCreate: 0o644} {
		path := filepath.Join(dir, string(typ))
		if err := hostPath(kube.HostPath{Path: path, Type: typ}); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", typ, info, err)
		}
	}
	for _, typ := range []kube.HostPathType{kube.Directory, kube.File, kube.Socket, kube.CharDevice, kube.BlockDevice} {
		path := filepath.Join(dir, string(typ))
		err := hostPath(kube.HostPath{Path: path, Type: typ})
		if !errs.Is(err, errs.NotFound) || !strings.HasSuffix(err.Error(), path+": not there") {
			t.Errorf("%s: %v", typ, err)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s: was made", typ)
		}
	}
	// A folder that is missing is not made for a file.
	err := hostPath(kube.HostPath{Path: filepath.Join(dir, "none", "file"), Type: kube.FileOrCreate})
	if err == nil {
		t.Error("made a file in no folder")
	}
}
