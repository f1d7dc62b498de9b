package fetch

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rkt-pods/rkt/tests/images"
)

// TestConcurrentImports has many imports of images that share a layer, beside
// collections and removals: none fails, and nothing is left.
func TestConcurrentImports(t *testing.T) {
	st := newStore(t)
	shared := must(images.Tar([]images.Entry{images.Dir("d", 0o700), images.File("d/f", 0o644, "shared")}))
	stop := make(chan struct{})
	var gc, imports sync.WaitGroup
	gc.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := st.Collect(t.Context(), none, 0); err != nil {
				t.Errorf("collect: %v", err)
			}
		}
	})
	for i := range 6 {
		top := must(images.Tar([]images.Entry{images.File("d/g", 0o644, fmt.Sprint(i%3))}))
		img := images.Image{Name: fmt.Sprintf("example.com/x%d:1", i), Layers: [][]byte{shared, top}}
		path := writeFile(t, "x.tar", must(images.Docker(img).Tar()))
		imports.Go(func() {
			for range 4 {
				rec, err := importWith(t.Context(), st, path, Options{Policy: unsigned})
				if err != nil {
					t.Errorf("import: %v", err)
					continue
				}
				for _, key := range rec.Layers {
					if _, err := os.Stat(filepath.Join(st.LayerFS(key), "d")); err != nil {
						t.Errorf("layer of an imported image: %v", err)
					}
				}
			}
		})
	}
	imports.Wait()
	close(stop)
	gc.Wait()
	list, err := st.Images()
	if err != nil {
		t.Fatal(err)
	}
	// The config is the same for two of them each, and so is the image.
	if len(list) != 3 {
		t.Errorf("%d images", len(list))
	}
	for _, rec := range list {
		if err := st.RemoveImage(t.Context(), rec.ID, none); err != nil {
			t.Error(err)
		}
	}
	checkClean(t, st)
}
