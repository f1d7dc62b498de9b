package tree

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/stage0/store"
)

// How far dependencies may go. A graph in which each image is named twice on
// each level is visited exponentially often.
const (
	maxDepth  = 64
	maxVisits = 1000
)

// Chain collects the layers of one image, the lowest first, and makes those
// that no tar has. Layers are looked for among the new ones, then in the store.
type Chain struct {
	// Missing brings in an image that another one depends on and the store lacks;
	// nil: it has to be there.
	Missing func(context.Context, *image.Dependency) (image.Record, error)

	store   *store.Store
	staging *store.Staging
	added   map[string]placed
	keys    []string
	depends []string
	visits  int
}

// placed is a layer and the folder it lies in now.
type placed struct {
	dir  string
	meta layer.Meta
}

// NewChain starts an empty chain for an image that is being staged.
func NewChain(st *store.Store, staging *store.Staging) *Chain {
	return &Chain{store: st, staging: staging, added: map[string]placed{}}
}

// Add makes a layer known that was unpacked to a folder of the staging entry.
func (c *Chain) Add(meta layer.Meta, dir string) { c.added[meta.Key] = placed{dir, meta} }

// OCI appends the layers of an OCI image. Those that were not added are in the
// store, and Need was told of them.
func (c *Chain) OCI(keys []string) { c.keys = append(c.keys, keys...) }

// ACI appends the layers of an ACI with the given layer and manifest: those of
// its dependencies first, depth first and in order, each cut to the whitelists
// of all images on the way to it.
func (c *Chain) ACI(ctx context.Context, key string, m *image.Manifest) error {
	return c.visit(ctx, node{key: key, manifest: m, path: []string{key}})
}

// node is one image on a path through the dependencies.
type node struct {
	key      string
	manifest *image.Manifest
	path     []string   // layer keys from the top to here
	lists    [][]string // whitelists from the top down to the one that names it
}

func (c *Chain) visit(ctx context.Context, n node) error {
	if c.visits++; c.visits > maxVisits || len(n.path) > maxDepth {
		return errs.Newf(errs.Denied, "dependencies of %s: more than %d, or deeper than %d", n.manifest.Name, maxVisits, maxDepth)
	}
	lists := n.lists
	if len(n.manifest.PathWhitelist) > 0 {
		lists = append(slices.Clone(lists), normalise(n.manifest.PathWhitelist))
	}
	for i := range n.manifest.Dependencies {
		dep := &n.manifest.Dependencies[i]
		rec, err := c.find(dep)
		if errs.Is(err, errs.NotFound) && c.Missing != nil {
			if rec, err = c.Missing(ctx, dep); err == nil {
				rec, err = c.find(dep)
			} else {
				err = fmt.Errorf("dependency %s: %w", dep, err)
			}
		}
		if err != nil {
			return err
		}
		m, err := c.store.Manifest(rec)
		if err != nil {
			return fmt.Errorf("dependency %s: %w", dep, err)
		}
		key := aciKey(rec.ID)
		if slices.Contains(n.path, key) {
			return errs.Newf(errs.Corrupt, "dependency %s: depends on itself", dep)
		}
		if !slices.Contains(c.depends, rec.ID) {
			c.depends = append(c.depends, rec.ID)
		}
		next := node{key: key, manifest: m, path: append(slices.Clone(n.path), key), lists: lists}
		if err := c.visit(ctx, next); err != nil {
			return err
		}
	}
	key, err := c.derive(ctx, n.key, lists)
	if err != nil {
		return err
	}
	c.keys = append(c.keys, key)
	return nil
}

func aciKey(id string) string {
	d, err := digest.Parse(id)
	if err != nil {
		panic(err) // ids of records are checked when they are read
	}
	return layer.Key(layer.ACI, d)
}

// find returns the image of the store that the dependency means.
func (c *Chain) find(dep *image.Dependency) (image.Record, error) {
	rec, err := c.store.ByName(dep.ImageName, dep.Labels)
	if dep.ImageID != "" {
		rec, err = c.store.Lookup(dep.ImageID)
	}
	switch {
	case errs.Is(err, errs.NotFound):
		err = errs.Newf(errs.NotFound, "dependency %s: not in the store", dep)
		return rec, errs.WithHint(err, "import it first: \"rkt fetch FILE\" with the file of %s", dep)
	case err != nil:
		return rec, fmt.Errorf("dependency %s: %w", dep, err)
	case rec.Kind != image.ACI:
		return rec, errs.Newf(errs.Unsupported, "dependency %s: is not an ACI", dep)
	case !dep.Matches(rec.Name, rec.Labels):
		return rec, errs.Newf(errs.Corrupt, "dependency %s: image %s is %s", dep, digest.ShortID(rec.ID, 12), image.Reference(rec.Name, rec.Labels))
	}
	return rec, nil
}

// normalise makes lists that mean the same the same.
func normalise(list []string) []string {
	var out []string
	for _, p := range list {
		out = append(out, path.Clean(p))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// locate returns where a layer lies.
func (c *Chain) locate(key string) (placed, error) {
	if p, ok := c.added[key]; ok {
		return p, nil
	}
	meta, err := c.store.LayerMeta(key)
	if err != nil {
		return placed{}, err
	}
	return placed{c.store.LayerDir(key), meta}, nil
}

// need makes sure that layers of the store stay there, or says that one is
// missing. Each call names all of them, since it replaces the last.
func (c *Chain) need(ctx context.Context, more ...string) (missing []string, err error) {
	missing, err = c.staging.Need(ctx, slices.Concat(c.keys, more))
	return slices.DeleteFunc(missing, func(key string) bool { _, ok := c.added[key]; return ok }), err
}

// Layers is a finished chain.
type Layers struct {
	Keys    []string          // the lowest first
	New     map[string]string // key → folder, of those that the store lacks
	Size    int64
	Depends []string
}

// Finish makes the fix-up layer if the chain needs one, drops what is not to be
// mounted, and returns the result.
func (c *Chain) Finish(ctx context.Context) (Layers, error) {
	missing, err := c.need(ctx)
	if err != nil {
		return Layers{}, err
	}
	if len(missing) > 0 {
		return Layers{}, errs.Newf(errs.Unavailable, "layer %s: was removed meanwhile", missing[0])
	}
	if err := c.fixup(ctx); err != nil {
		return Layers{}, fmt.Errorf("fix-up layer: %w", err)
	}
	c.keys, err = Stack(c.keys, func(key string) (string, layer.Meta, error) {
		p, err := c.locate(key)
		return p.dir, p.meta, err
	})
	if err != nil {
		return Layers{}, err
	}
	out := Layers{Keys: c.keys, New: map[string]string{}, Depends: c.depends}
	for _, key := range c.keys {
		p, err := c.locate(key)
		if err != nil {
			return Layers{}, err
		}
		out.Size += p.meta.Size
		if a, ok := c.added[key]; ok {
			out.New[key] = a.dir
		}
	}
	// The layer that a derived one was cut from is the image itself: without
	// it there is nothing to verify or export.
	for key, p := range c.added {
		if p.meta.From == "" && len(p.meta.Chain) == 0 {
			out.New[key] = p.dir
		}
	}
	return out, nil
}

// Stack returns those layers of a chain that are mounted: none below the last
// one whose root is opaque, since overlayfs always merges the roots of its layers,
// whatever they are marked as, and of each key only the last, since it refuses a
// layer that comes twice (ELOOP), and the upper one decides.
func Stack(chain []string, locate Locate) ([]string, error) {
	var layers []placed
	for _, key := range chain {
		dir, meta, err := locate(key)
		if err != nil {
			return nil, err
		}
		layers = append(layers, placed{dir, meta})
	}
	lowest, err := lowestSeen(layers)
	if err != nil {
		return nil, err
	}
	var out []string
	for i := lowest; i < len(chain); i++ {
		if !slices.Contains(chain[i+1:], chain[i]) {
			out = append(out, chain[i])
		}
	}
	return out, nil
}

// lowestSeen is the index of the last layer whose root is opaque, or 0.
func lowestSeen(chain []placed) (int, error) {
	for i, p := range slices.Backward(chain) {
		opaque, err := isOpaque(filepath.Join(p.dir, "fs"))
		if err != nil {
			return 0, fmt.Errorf("layer %s: %w", p.meta.Key, err)
		}
		if opaque {
			return i, nil
		}
	}
	return 0, nil
}

func (p placed) open() (*root, error) { return openRoot(filepath.Join(p.dir, "fs")) }

// derive returns the key of the layer cut to the whitelists, and makes that
// layer if there is none.
func (c *Chain) derive(ctx context.Context, key string, lists [][]string) (string, error) {
	lists = slices.Clone(lists)
	slices.SortFunc(lists, func(a, b []string) int { return slices.Compare(a, b) })
	lists = slices.CompactFunc(lists, func(a, b []string) bool { return slices.Equal(a, b) })
	if len(lists) == 0 {
		return key, nil
	}
	derived := layer.DerivedKey(key, lists)
	missing, err := c.need(ctx, key, derived)
	if err != nil {
		return "", err
	}
	if slices.Contains(missing, key) {
		return "", errs.Newf(errs.NotFound, "layer %s: not in the store", key)
	}
	if _, ok := c.added[derived]; ok || !slices.Contains(missing, derived) {
		return derived, nil
	}
	from, err := c.locate(key)
	if err != nil {
		return "", err
	}
	dir, err := c.staging.NewLayer()
	if err != nil {
		return "", err
	}
	meta := layer.Meta{Version: layer.MetaVersion, Key: derived, From: key, Whitelist: lists}
	if err := derive(ctx, from, dir, &meta); err != nil {
		return "", fmt.Errorf("cut layer to its whitelist: %w", err)
	}
	c.added[derived] = placed{dir, meta}
	return derived, nil
}
