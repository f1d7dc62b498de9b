package podspec

import "github.com/rkt-pods/rkt/pkg/errs"

// AnnGroups is the annotation of an app that says which groups it has besides
// those in the manifest.
const AnnGroups = "rkt/user/groups"

// Groups is the value of AnnGroups.
type Groups string

// The groups an app may have besides those in the manifest.
const (
	// OwnGroups are those of the user, its first one included, as the image's
	// /etc/passwd and /etc/group say; the manifest's group is not looked at.
	OwnGroups Groups = "own"
	// MoreGroups are those of the user but for its first one, in whose place
	// the manifest's group is.
	MoreGroups Groups = "more"
)

// ParseGroups understands own and more.
func ParseGroups(s string) (Groups, error) {
	switch g := Groups(s); g {
	case OwnGroups, MoreGroups:
		return g, nil
	}
	return "", errs.Newf(errs.Usage, "groups: %q: neither %s nor %s", s, OwnGroups, MoreGroups)
}
