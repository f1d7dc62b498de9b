package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/rkt-pods/rkt/pkg/digest"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/layer"
	"github.com/rkt-pods/rkt/stage0/tree"
)

// DefaultParallel is how many layers are brought in at a time.
const DefaultParallel = 4

// input is one layer of an image as its source has it.
type input struct {
	want   digest.Digest // of the tar
	object string        // what it is called in messages and events
	from   string        // the file or blob that it is read from
	size   int64         // of its packed form; 0: unknown
	// open opens the tar. Whatever is wrong with the form that it came in is
	// told by the reader's last error. told gets the bytes that came so far.
	open func(ctx context.Context, told func(int64)) (io.ReadCloser, error)
}

func (in input) key() string { return layer.Key(layer.OCI, in.want) }

// inputs pairs the layers of an image with its diff ids.
func inputs(diffIDs []string, one func(i int, want digest.Digest) input) ([]input, error) {
	list := make([]input, len(diffIDs))
	for i, id := range diffIDs {
		d, err := digest.ParseOCI(id)
		if err != nil {
			return nil, errs.WithClass(errs.Corrupt, fmt.Errorf("diff id: %w", err))
		}
		list[i] = one(i, d)
	}
	return list, nil
}

// layers brings in the layers that the store lacks, several at a time and each
// once, and gives each its name as soon as it is verified: who tries again after
// an interruption finds it.
func (im *importer) layers(rec *image.Record, list []input) (*tree.Chain, error) {
	keys := make([]string, len(list))
	for i, in := range list {
		keys[i] = in.key()
	}
	rec.Own = keys
	if _, err := im.staging.Need(im.ctx, keys); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(im.ctx)
	defer cancel()
	var all sync.WaitGroup
	slots := make(chan struct{}, im.parallel())
	commits := &committer{commit: im.staging.CommitLayers}
	errors := make([]error, len(list))
	for i, in := range list {
		if slices.Contains(keys[:i], keys[i]) && !im.readAll {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			w := &worker{importer: im, ctx: ctx, input: in, commits: commits, release: sync.OnceFunc(func() { <-slots })}
			defer w.release()
			if errors[i] = w.bring(); errors[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	if err := im.first(errors); err != nil {
		return nil, err
	}
	chain := tree.NewChain(im.store, im.staging)
	chain.OCI(keys)
	return chain, nil
}

// first is the error of the first layer that failed by itself, and not because
// another one did.
func (im *importer) first(all []error) error {
	if err := im.ctx.Err(); err != nil {
		return err
	}
	for _, own := range []bool{true, false} {
		for i, err := range all {
			if err != nil && (!own || !errors.Is(err, context.Canceled)) {
				return fmt.Errorf("layer %d of %d: %w", i+1, len(all), err)
			}
		}
	}
	return nil
}

func (im *importer) parallel() int {
	if im.opt.Parallel > 0 {
		return im.opt.Parallel
	}
	return DefaultParallel
}

// worker brings in one layer.
type worker struct {
	*importer
	ctx     context.Context
	input   input
	commits *committer
	release func() // lets the next layer begin
}

// bring brings the layer in, unless somebody else has or does so meanwhile.
func (w *worker) bring() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	has, err := w.store.HasLayer(w.input.key())
	if err != nil {
		return err
	}
	if has {
		return w.present()
	}
	w.tell(Waiting, 0)
	claim, err := w.store.Claim(w.ctx, w.input.key())
	if err != nil {
		return err
	}
	if has, err = w.store.HasLayer(w.input.key()); err == nil && has {
		err = w.present()
	} else if err == nil {
		err = w.fetch()
	}
	return errors.Join(err, claim.Release())
}

// present is for a layer that the store has. A file is good or not, whatever was
// imported before, so that it is read all the same, once; what is far away is not.
func (w *worker) present() error {
	if _, was := w.wasRead.Load(w.mark()); w.readAll && !was {
		if err := w.read(w.check); err != nil {
			return err
		}
	}
	w.tell(Present, w.input.size)
	return nil
}

func (w *worker) fetch() error {
	w.tell(Fetching, 0)
	dir, err := w.staging.NewLayer()
	if err != nil {
		return err
	}
	err = w.read(func(in io.Reader, abort func()) error {
		_, err := tree.Unpack(w.ctx, in, dir, tree.Options{Kind: layer.OCI, Want: w.input.want, Budget: w.budget, Abort: abort})
		return err
	})
	if err != nil {
		return err
	}
	w.release()
	if err := w.commits.add(w.input.key(), dir); err != nil {
		return err
	}
	w.tell(Done, w.input.size)
	return nil
}

// readLayer is what was compared with what.
type readLayer struct {
	from, key string
	size      int64
}

func (w *worker) mark() readLayer { return readLayer{w.input.from, w.input.key(), w.input.size} }

// read opens the layer, and closes it as soon as nobody wants it any more: the
// reader may wait for a stranger.
func (w *worker) read(use func(in io.Reader, abort func()) error) error {
	r, err := w.input.open(w.ctx, func(n int64) { w.tell(Fetching, n) })
	if err != nil {
		return err
	}
	closed := sync.OnceValue(r.Close)
	defer func() { _ = closed() }() // read only
	abort := func() { _ = closed() }
	stop := context.AfterFunc(w.ctx, abort)
	defer stop()
	err = use(r, abort)
	if w.ctx.Err() != nil {
		return w.ctx.Err() // and not what became of a closed reader
	}
	if err == nil {
		w.wasRead.Store(w.mark(), true)
	}
	return err
}

// check reads a layer that is there already and compares it with its diff id.
func (w *worker) check(in io.Reader, _ func()) error {
	want := w.input.want
	h := want.Alg.New()
	if _, err := io.Copy(h, in); err != nil {
		return err
	}
	if got := digest.Sum(want.Alg, h); got != want {
		return errs.Newf(errs.Corrupt, "layer %s: the content is %s", want.OCI(), got.OCI())
	}
	return nil
}

func (w *worker) tell(s State, done int64) {
	w.progress(Event{Stage: StageLayer, Object: w.input.object, State: s, Done: done, Total: w.input.size})
}

// committer gives layers their names, as many with one sync as are waiting for
// it: a sync is of the whole file system.
type committer struct {
	commit  func(map[string]string) error
	mu      sync.Mutex
	waiting *batch
	busy    bool
}

type batch struct {
	layers map[string]string
	done   chan struct{}
	err    error
}

// add waits until the layer has its name.
func (c *committer) add(key, dir string) error {
	c.mu.Lock()
	if c.waiting == nil {
		c.waiting = &batch{layers: map[string]string{}, done: make(chan struct{})}
	}
	b := c.waiting
	b.layers[key] = dir
	if !c.busy {
		c.busy = true
		go c.run()
	}
	c.mu.Unlock()
	<-b.done
	return b.err
}

func (c *committer) run() {
	for {
		c.mu.Lock()
		b := c.waiting
		c.waiting, c.busy = nil, b != nil
		c.mu.Unlock()
		if b == nil {
			return
		}
		b.err = c.commit(b.layers)
		close(b.done)
	}
}
