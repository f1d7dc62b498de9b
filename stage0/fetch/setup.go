package fetch

import (
	"maps"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/stage0/config"
	"github.com/rkt-pods/rkt/stage0/tree"
)

// Limits are what an image may be at most. Zeroes stand for the defaults.
type Limits struct {
	tree.Limits
	Ratio int64 // bytes that one packed byte may become
}

// Registries says to the program that talks to registries what is configured for
// them. Whether a mirror may be asked in the clear is what stands in its own
// entry.
func Registries(configured map[string]config.Registry) []fetchwire.Registry {
	var list []fetchwire.Registry
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		c := configured[name]
		r := fetchwire.Registry{Name: name, PlainHTTP: c.PlainHTTP}
		for _, m := range c.Mirrors {
			host, prefix, _ := strings.Cut(m, "/")
			r.Mirrors = append(r.Mirrors, fetchwire.Mirror{Host: host, Prefix: prefix, PlainHTTP: configured[host].PlainHTTP})
		}
		list = append(list, r)
	}
	return list
}

// Wire is what of the limits whoever decompresses has to keep.
func (l Limits) Wire() fetchwire.Limits {
	return fetchwire.Limits{MaxExpansion: l.Ratio}
}
