// Package idrange has the ranges of user and group ids that pods with a user
// namespace get: id 0 in the pod is the range's first id on the host.
package idrange

import (
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// Size is how many ids a pod gets that does not say: all that 16 bits name,
// nobody's among them.
const Size = 1 << 16

// Overflow is what the kernel shows for an id that has no meaning.
const Overflow = 65534

// most is one more than the greatest id: -1 means none.
const most = 1<<32 - 1

// Range is the ids of one pod, the same for users and groups. Of a pod without
// a user namespace it is nil: then each id is what it is.
type Range struct {
	Start uint32 `json:"start"`
	Count uint32 `json:"count"`
}

// Host is what an id in the pod is on the host. One that the pod does not have
// is nobody's.
func (r *Range) Host(id int) int {
	switch {
	case r == nil:
		return id
	case !r.Has(id):
		return Overflow
	}
	return int(r.Start) + id
}

// Inside is what an id of the host is in the pod.
func (r *Range) Inside(id int) int {
	switch {
	case r == nil:
		return id
	case id < int(r.Start) || id >= r.end():
		return Overflow
	}
	return id - int(r.Start)
}

// Has says whether there is such an id in the pod.
func (r *Range) Has(id int) bool { return r == nil || id >= 0 && id < int(r.Count) }

// Overlaps says whether an id is in both.
func (r *Range) Overlaps(other Range) bool {
	return int(r.Start) < other.end() && int(other.Start) < r.end()
}

func (r *Range) end() int { return int(r.Start) + int(r.Count) }

// String is the range as it is written on a command line.
func (r *Range) String() string {
	return strconv.FormatUint(uint64(r.Start), 10) + ":" + strconv.FormatUint(uint64(r.Count), 10)
}

// Auto asks for a range that no other pod has.
const Auto = "auto"

// Parse reads auto, for which it returns nil, or START:COUNT.
func Parse(s string) (*Range, error) {
	if s == Auto {
		return nil, nil
	}
	first, second, ok := strings.Cut(s, ":")
	start, err := strconv.ParseUint(first, 10, 32)
	count, cerr := strconv.ParseUint(second, 10, 32)
	if !ok || err != nil || cerr != nil {
		return nil, errs.Newf(errs.Usage, "%q: neither %s nor START:COUNT", s, Auto)
	}
	switch {
	case start == 0:
		return nil, errs.Newf(errs.Usage, "%q: begins with the host's root", s)
	case count == 0:
		return nil, errs.Newf(errs.Usage, "%q: is empty", s)
	case start+count > most:
		return nil, errs.Newf(errs.Usage, "%q: ends above the greatest id, %d", s, int64(most-1))
	}
	return &Range{Start: uint32(start), Count: uint32(count)}, nil
}
