package gc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rkt-pods/rkt/stage0/pod"
)

// Options say what is due.
type Options struct {
	GracePeriod    time.Duration // after the recorded end
	ExpirePrepared time.Duration // after the preparation
	MarkOnly       bool
	KeepLast       int  // so many of the pods that ended last stay, whatever the grace period
	Volumes        bool // named volumes that no pod holds, too, with the same grace
	Measure        bool // count the bytes of the pods that go
	Now            time.Time
}

// action says what is due for one pod, and why it stays if it does.
func (o Options) action(pods pod.Pods, one pod.Pod, last bool) (a Action, why string, err error) {
	switch one.State {
	case pod.Exiting, pod.Exited:
		if why, err = o.stays(pods, one, last); err != nil {
			return "", "", err
		}
		if why != "" {
			return Mark, why, nil
		}
		a = Collect
	case pod.ExitedGarbage:
		why, err = o.stays(pods, one, last)
		switch {
		case err != nil:
			return "", "", err
		case why != "" && pods.HoldsNetwork(one):
			return Mark, why, nil // what failed is tried again
		case why != "":
			return "", why, nil
		}
		a = Collect
	case pod.AbortedPrepare, pod.Embryo:
		a = CollectFailed
	case pod.Prepared:
		f, err := pods.Facts(one)
		if err != nil {
			return "", "", notGone(err)
		}
		if f.CreatedAt.Add(o.ExpirePrepared).After(o.Now) {
			return "", fmt.Sprintf("prepared %s ago; it expires after %s", o.Now.Sub(f.CreatedAt).Round(time.Second), o.ExpirePrepared), nil
		}
		a = CollectExpired
	case pod.Garbage:
		a = CollectGarbage
	case pod.Preparing, pod.Running, pod.ExitedDeleting, pod.Deleting:
		return "", "is " + string(one.State), nil
	}
	if !o.MarkOnly {
		return a, "", nil
	}
	if one.State == pod.Exiting || one.State == pod.Exited {
		a = Mark
	} else {
		a = ""
	}
	return a, "pods are only marked", nil
}

// last are the pods that ended last, as many as are to be kept.
func (o Options) last(pods pod.Pods, all []pod.Pod) map[string]bool {
	if o.KeepLast <= 0 {
		return nil
	}
	age := map[string]time.Duration{}
	for _, one := range all {
		if one.Damage == nil && (one.State == pod.Exiting || one.State == pod.Exited || one.State == pod.ExitedGarbage) {
			// One that can't be read is named when its turn comes.
			age[one.UUID], _ = o.age(pods, one)
		}
	}
	youngest := slices.SortedFunc(maps.Keys(age), func(a, b string) int { return cmp.Compare(age[a], age[b]) })
	kept := map[string]bool{}
	for _, uuid := range youngest[:min(o.KeepLast, len(youngest))] {
		kept[uuid] = true
	}
	return kept
}

// stays says why a pod that has ended is not due. The grace period counts from
// its end.
func (o Options) stays(pods pod.Pods, one pod.Pod, last bool) (string, error) {
	if last {
		return fmt.Sprintf("is one of the last %d", o.KeepLast), nil
	}
	age, err := o.age(pods, one)
	if err != nil {
		return "", notGone(err)
	}
	if age < o.GracePeriod {
		return fmt.Sprintf("ended %s ago; the grace period is %s", age.Round(time.Second), o.GracePeriod), nil
	}
	return "", nil
}

// age is how long ago the pod has ended; an end that nobody could record is
// taken to be now.
func (o Options) age(pods pod.Pods, one pod.Pod) (time.Duration, error) {
	exit, err := pods.Exit(one)
	if err == nil && exit != nil && !exit.Derived {
		return exit.Age(o.Now), nil
	}
	return 0, err
}
