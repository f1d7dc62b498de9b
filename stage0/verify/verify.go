// Package verify compares images of the store with what was imported: records,
// blobs, names, the layers of the image's own tars entry by entry, and the
// layers that were made of others. It also asks again who made an image.
package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/stage0/oci"
	"github.com/rkt-pods/rkt/stage0/store"
	"github.com/rkt-pods/rkt/stage0/tree"
	"github.com/rkt-pods/rkt/stage0/trust"
)

// Finding is one damage and where it is.
type Finding struct {
	Image string `json:"image"`
	Layer string `json:"layer,omitempty"` // key
	tree.Damage
}

// String says it in one line.
func (f Finding) String() string {
	if f.Layer == "" {
		return f.Damage.String()
	}
	return fmt.Sprintf("layer %s: %s", f.Layer, f.Damage)
}

// Verifier checks images one after the other, and a layer that several have
// once.
type Verifier struct {
	store *store.Store
	done  map[string][]tree.Damage
	aci   map[string][]byte // layer key → the manifest in its tar
}

// New makes a Verifier for the store.
func New(st *store.Store) *Verifier {
	return &Verifier{store: st, done: map[string][]tree.Damage{}, aci: map[string][]byte{}}
}

// Image checks the image of that id. The error is about the checking itself: the
// image may be good or not.
func (v *Verifier) Image(ctx context.Context, id string) (list []Finding, err error) {
	entry, rec, err := v.store.Protect(ctx, id)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, entry.Close()) }()
	c := &check{Verifier: v, ctx: ctx, rec: rec, entry: entry}
	keys := slices.Concat(rec.Own, rec.Layers)
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if err := c.layer(key); err != nil {
			return c.found, err
		}
	}
	if err := c.chain(); err != nil {
		return c.found, err
	}
	if rec.Kind == image.ACI {
		c.aciRecord()
	} else {
		c.ociRecord()
	}
	c.blobs()
	for _, ref := range rec.Names {
		if rec.Store != "" {
			break // names are the business of the host that made it
		}
		if err := v.store.CheckName(ref); err != nil {
			c.record("%v", err)
		}
	}
	return c.found, nil
}

// Distrust is what a Finding of Trust is.
const Distrust = "trust"

// Trust repeats the check of who made the image, by what is kept of it and the
// policy that holds now.
func (v *Verifier) Trust(ctx context.Context, id string, p trust.Policy) ([]Finding, error) {
	rec, err := v.store.Image(id)
	if err != nil {
		return nil, err
	}
	_, err = p.Again(ctx, rec, v.store.Blob)
	if errs.Is(err, errs.Denied) || errs.Is(err, errs.Corrupt) || errs.Is(err, errs.Unsupported) {
		return []Finding{{Image: id, Damage: tree.Damage{What: Distrust, Detail: err.Error()}}}, nil
	}
	return nil, err
}

type check struct {
	*Verifier
	ctx   context.Context
	rec   image.Record
	entry *store.Staging
	found []Finding
}

func (c *check) add(layer string, d tree.Damage) {
	c.found = append(c.found, Finding{Image: c.rec.ID, Layer: layer, Damage: d})
}

func (c *check) record(format string, args ...any) {
	c.add("", tree.Damage{What: tree.Records, Detail: fmt.Sprintf(format, args...)})
}

// damaged says whether the error is about the store's content.
func damaged(err error) bool { return errs.Is(err, errs.NotFound) || errs.Is(err, errs.Corrupt) }

// said tells an error about a damaged layer: nothing more can be said of that, and
// it was named.
func (c *check) said(err error) bool { return damaged(err) || err != nil && len(c.found) > 0 }

func (c *check) layer(key string) error {
	if _, ok := c.done[key]; !ok {
		list, err := c.look(key)
		if err != nil {
			return err
		}
		c.done[key] = list
	}
	for _, d := range c.done[key] {
		c.add(key, d)
	}
	return nil
}

func (c *check) look(key string) (list []tree.Damage, err error) {
	meta, err := c.store.LayerMeta(key)
	if err == nil && meta.Key != key {
		err = errs.Newf(errs.Corrupt, "layer record: is of layer %q", meta.Key)
	}
	if damaged(err) {
		return []tree.Damage{{What: tree.Records, Detail: err.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	scratch, err := c.entry.NewLayer()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	kind, _, err := layer.ParseKey(key)
	if err != nil {
		return nil, err
	}
	if kind == layer.Fixup || kind == layer.Derived {
		list, err = tree.VerifyMade(c.ctx, c.store.LayerDir(key), meta, scratch, c.locate)
		if errs.Is(err, errs.Corrupt) {
			return []tree.Damage{{What: tree.Records, Detail: err.Error()}}, nil
		}
		return list, err
	}
	list, c.aci[key], err = tree.Verify(c.ctx, c.store.LayerDir(key), meta, scratch)
	return list, err
}

func (c *check) locate(key string) (string, layer.Meta, error) {
	meta, err := c.store.LayerMeta(key)
	return c.store.LayerDir(key), meta, err
}

// chain checks that the layers to be mounted are those that the image's own
// ones need.
func (c *check) chain() error {
	keys := c.rec.Layers
	fixup := ""
	if n := len(keys); n > 0 && isKind(keys[n-1], layer.Fixup) {
		fixup, keys = keys[n-1], keys[:n-1]
	}
	given := keys
	if c.rec.Kind == image.OCI {
		given = c.rec.Own
		stack, err := tree.Stack(given, c.locate)
		if c.said(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if !slices.Equal(keys, stack) {
			c.record("layers: are not those of the config")
			return nil
		}
	}
	if fixup != "" {
		meta, err := c.store.LayerMeta(fixup)
		if damaged(err) {
			return nil // said before
		}
		if err != nil {
			return err
		}
		if c.rec.Kind == image.ACI {
			given = meta.Chain
		}
		return c.fixup(fixup, given, keys)
	}
	need, err := tree.NeedsFixup(given, c.locate)
	if c.said(err) {
		return nil
	}
	if err == nil && need {
		c.record("layers: the fix-up layer is missing")
	}
	return err
}

// fixup checks that the fix-up layer is that of the chain given, of which keys
// are mounted.
func (c *check) fixup(fixup string, given, keys []string) error {
	stack, err := tree.Stack(given, c.locate)
	if err != nil && !c.said(err) {
		return err
	}
	if fixup != layer.FixupKey(given) || err == nil && !slices.Equal(keys, stack) {
		c.record("layers: fix-up layer %s is of another chain", fixup)
	}
	return nil
}

func isKind(key string, kind layer.Kind) bool {
	k, _, err := layer.ParseKey(key)
	return err == nil && k == kind
}

func (c *check) aciRecord() {
	d, err := digest.Parse(c.rec.ID)
	if err != nil || len(c.rec.Own) != 1 || c.rec.Own[0] != layer.Key(layer.ACI, d) {
		c.record("own: is not the layer of the image's id")
		return
	}
	blob, err := c.store.Blob(c.rec.Manifest)
	if err != nil {
		return // said with the blobs
	}
	if in, ok := c.aci[c.rec.Own[0]]; ok && in != nil && !bytes.Equal(in, blob) {
		c.record("manifest: is not the one in the image")
	}
	m, err := image.Parse(blob)
	if err != nil {
		c.record("manifest: %v", err)
		return
	}
	if m.Name != c.rec.Name || !slices.Equal(m.Labels, c.rec.Labels) {
		c.record("name: %s, but the manifest's is %s", image.Reference(c.rec.Name, c.rec.Labels), image.Reference(m.Name, m.Labels))
	}
}

func (c *check) ociRecord() {
	config, err := c.store.Blob(c.rec.Config)
	if err != nil {
		return // said with the blobs
	}
	defining := config
	if c.rec.Manifest != "" {
		if defining, err = c.store.Blob(c.rec.Manifest); err != nil {
			return
		}
		var m oci.Manifest
		if err := json.Unmarshal(defining, &m); err != nil {
			c.record("manifest: not valid JSON: %v", err)
			return
		}
		if d, err := digest.Parse(m.Config.Digest); err != nil || d.String() != c.rec.Config {
			c.record("config: is not that of the manifest")
		}
	}
	if id := digest.ImageID(digest.Of(digest.SHA512, defining)); id != c.rec.ID {
		c.record("id: the manifest's is %s", digest.ShortID(id, 12))
	}
	parsed, err := image.ParseConfig(config)
	if err != nil {
		c.record("config: %v", err)
		return
	}
	var own []string
	for _, id := range parsed.RootFS.DiffIDs {
		if d, err := digest.Parse(id); err == nil {
			own = append(own, layer.Key(layer.OCI, d))
		}
	}
	if !slices.Equal(own, c.rec.Own) {
		c.record("own: are not the layers of the config")
	}
}

// blobs reads all blobs of the record to their ends.
func (c *check) blobs() {
	for _, name := range store.Blobs(c.rec) {
		r, _, err := c.store.OpenBlob(name)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
			_ = r.Close() // read only
		}
		if err != nil {
			c.record("%v", err)
		}
	}
}
