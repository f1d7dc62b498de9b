package podplan

import (
	"slices"
	"strconv"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// checkNonRoot refuses a user that is root, and one of which only the image's
// files would tell.
func checkNonRoot(app, user string) error {
	n, err := strconv.ParseUint(user, 10, 32)
	switch {
	case user == "root" || err == nil && n == 0:
		return errs.WithHint(errs.Newf(errs.Denied, "app %s: would run as root, and must not", app), "give it another user")
	case err != nil:
		return errs.WithHint(errs.Newf(errs.Denied, "app %s: user %q: may be root, and must not", app, user), "give its number")
	}
	return nil
}

// mergePorts lets a given port take the place of the image's of that name.
func mergePorts(image, given []appc.Port) []appc.Port {
	out := slices.Clone(image)
	for _, g := range given {
		if i := slices.IndexFunc(out, func(p appc.Port) bool { return p.Name == g.Name }); i >= 0 {
			out[i] = g
		} else {
			out = append(out, g)
		}
	}
	return out
}
