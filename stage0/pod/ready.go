package pod

import (
	"context"
	"errors"
	"io/fs"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// WaitReady returns once the pod is ready, for anyone who can read its summary.
// The error is of class Unavailable if it ends before, or ctx does.
func WaitReady(ctx context.Context, storeID, uuid string) error {
	for {
		s, err := ReadPublic(storeID, uuid)
		if errors.Is(err, fs.ErrNotExist) {
			return Removed(uuid, "waited for")
		}
		if err != nil {
			return err
		}
		pod := Pod{UUID: uuid, State: PublicState(s)}
		switch pod.State {
		case Running:
			if s.Ready {
				return nil
			}
			err = waitReplaced(ctx, publicPath(storeID, uuid), s)
		case Prepared:
			err = waitReplaced(ctx, publicPath(storeID, uuid), s)
		default:
			return errs.WithHint(errs.Newf(errs.Unavailable, "pod %s: ended before it was ready", uuid), "\"rkt status %s\" and \"rkt logs %[1]s\" tell why", uuid)
		}
		if err != nil {
			what := "not ready yet"
			if s.Awaiting != "" {
				what += ", " + s.Awaiting + ","
			}
			return podErr(pod, sayHowLong(ctx, what, err))
		}
	}
}

// WaitReady is WaitReady for who may see the pod's folder. A pod that is just
// being prepared has an UUID, which its user knows already, and no summary yet.
func (p Pods) WaitReady(ctx context.Context, uuid string) error {
	for {
		pod, err := p.Get(uuid)
		if errors.Is(err, fs.ErrNotExist) {
			return Removed(uuid, "waited for")
		}
		if err != nil {
			return err
		}
		if pod.State != Embryo && pod.State != Preparing {
			return WaitReady(ctx, p.StoreID, uuid)
		}
		if err := p.waitMove(ctx, pod); err != nil {
			return podErr(pod, sayHowLong(ctx, "not ready yet", err))
		}
	}
}
