package main

import (
	"strconv"

	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/fetch"
)

// fetchFlags say when images are fetched, and which ones get in.
type fetchFlags struct {
	pull      fetch.Pull
	pullGiven bool
	platform  fetch.Platform
	limits    fetch.Limits
}

// declare declares the flags of every command that takes images from anywhere.
func (o *fetchFlags) declare(fs *pflag.FlagSet, def fetch.Pull) {
	o.pull = def
	value(fs, "pull-policy", "POLICY", "never: images of the store only; new: fetch what the store lacks; update: and what is another one now (default "+string(def)+")", func(v string) error {
		switch p := fetch.Pull(v); p {
		case fetch.PullNever, fetch.PullNew, fetch.PullUpdate:
			o.pull, o.pullGiven = p, true
			return nil
		}
		return errs.Newf(errs.Usage, "%q is none of new, never, update", v)
	})
	for name, p := range map[string]fetch.Pull{"store-only": fetch.PullNever, "no-store": fetch.PullUpdate} {
		boolean(fs, name, "as --pull-policy="+string(p), func(on bool) error {
			if on {
				o.pull, o.pullGiven = p, true
			}
			return nil
		})
		fs.Lookup(name).Hidden = true
	}
	o.declareLimits(fs)
}

// declareLimits declares what bounds an image that is imported.
func (o *fetchFlags) declareLimits(fs *pflag.FlagSet) {
	value(fs, "max-image-size", "SIZE", "how large an image may be, unpacked, as 20Gi (default 256Gi)", func(v string) error {
		return positiveQuantity(v, &o.limits.Size)
	})
	value(fs, "max-entries", "N", "how many files an image may have (default 5000000)", func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n <= 0 {
			return errs.Newf(errs.Usage, "%q: not a number above 0", v)
		}
		o.limits.Entries = n
		return nil
	})
	value(fs, "max-ratio", "N", "how many bytes one packed byte may become, runs of zeroes counted as a 32nd of their length (default 2000)", func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n <= 0 {
			return errs.Newf(errs.Usage, "%q: not a number above 0", v)
		}
		o.limits.Ratio = n
		return nil
	})
}

// declarePlatform is for commands that don't run what they fetch.
func (o *fetchFlags) declarePlatform(fs *pflag.FlagSet) {
	value(fs, "platform", "OS/ARCH[/VARIANT]", "platform of the images (default: this host's)", func(v string) (err error) {
		o.platform, err = fetch.ParsePlatform(v)
		return err
	})
}

// positiveQuantity reads a number of bytes such as 500Mi.
func positiveQuantity(v string, to *int64) error {
	q, err := appc.ParseQuantity(v)
	if err == nil {
		*to, err = q.Ceil()
	}
	if err == nil && *to <= 0 {
		err = errs.Newf(errs.Usage, "%q: not more than 0", v)
	}
	return err
}
