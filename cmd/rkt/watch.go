package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/pod"
)

// follow calls show at once, and again whenever something about the pods may
// have changed, until the context ends or show says that it is done.
func follow(ctx context.Context, pods pod.Pods, show func() (done bool, err error)) error {
	w, err := pods.Watch()
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // it was only read
	for {
		if err := w.Refresh(); err != nil {
			return err
		}
		if done, err := show(); done || err != nil {
			return err
		}
		if err := w.Next(ctx); err != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil // by a signal, which is the usual end
			}
			return err
		}
	}
}

// watchList prints the list again each time that it has changed.
func watchList(ctx context.Context, g *globals, o listOptions) error {
	if err := g.needRoot(); err != nil {
		return err
	}
	h, err := g.openExisting()
	if errs.Is(err, errs.NotFound) {
		return errs.WithHint(err, "there is no pod to watch yet")
	}
	if err != nil {
		return err
	}
	var last []byte
	return follow(ctx, h.pods, func() (bool, error) {
		views, _, err := g.views()
		if err != nil {
			return true, err
		}
		views = o.filter.apply(views)
		// Times that pass are no change.
		var key bytes.Buffer
		for _, v := range views {
			if err := printJSON(&key, "json", v.json()); err != nil {
				return true, err
			}
		}
		if last != nil && bytes.Equal(key.Bytes(), last) {
			return false, nil
		}
		if last != nil && o.format == "" {
			fmt.Fprintln(g.stdout)
		}
		last = key.Bytes()
		return false, runList(g, o)
	})
}
