package fetch

import (
	"context"
	"os"
	"testing"

	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/tests/rktfetch"
)

// TestMain is a child of a test if it is run as one.
func TestMain(m *testing.M) {
	for _, child := range children {
		if child() {
			return
		}
	}
	os.Exit(rktfetch.Main(m))
}

// children are what this program is beside the tests: each says whether it was
// that now.
var children []func() bool

// importWith imports with a rkt-fetch that was built for the tests.
func importWith(ctx context.Context, st *store.Store, path string, opt Options) (image.Record, error) {
	opt.Decompressor = remote.NewDecompressor(rktfetch.Program(), fetchwire.Limits{})
	defer opt.Decompressor.Close()
	return Import(ctx, st, path, opt)
}
