package uids

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
)

// Owner is the name under which /etc/subuid and /etc/subgid list the ids of
// pods (subuid(5)).
const Owner = "rkt"

// unlisted are the ids of pods on a host whose files say nothing of them:
// above those that useradd(8) and systemd give away, and below 2³¹, from where
// on programs take them for negative.
var unlisted = idrange.Range{Start: 0x70000000, Count: 0x10000000}

// subIDs are the two files.
type subIDs struct{ user, group string }

// pool is where ranges are taken from, and what is somebody else's in it.
type pool struct {
	blocks []idrange.Range
	others []idrange.Range
}

// read joins what the two files say: a range of a pod is one of users and one
// of groups.
func (s subIDs) read() (pool, error) {
	users, otherUsers, err := readSubIDs(s.user, Owner)
	if err != nil {
		return pool{}, err
	}
	groups, otherGroups, err := readSubIDs(s.group, Owner)
	if err != nil {
		return pool{}, err
	}
	if len(users) == 0 && len(groups) == 0 {
		return pool{blocks: []idrange.Range{unlisted}, others: append(otherUsers, otherGroups...)}, nil
	}
	var p pool
	for _, u := range users {
		for _, g := range groups {
			if both, ok := intersect(u, g); ok {
				p.blocks = append(p.blocks, both)
			}
		}
	}
	if len(p.blocks) == 0 {
		err := errs.Newf(errs.Unavailable, "%s and %s: no ids of %s that are in both", s.user, s.group, Owner)
		return p, errs.WithHint(err, "give the owner %s the same ids in both files, such as %s:%s", Owner, Owner, &unlisted)
	}
	return p, nil
}

// OfUser are the ids that the host's files give to an ordinary user, by his name
// or his number.
func OfUser(name, uid string) (users, groups []idrange.Range, err error) {
	ids := OfHost().ids
	if users, _, err = readSubIDs(ids.user, name, uid); err != nil {
		return nil, nil, err
	}
	groups, _, err = readSubIDs(ids.group, name, uid)
	return users, groups, err
}

func intersect(a, b idrange.Range) (idrange.Range, bool) {
	start := max(a.Start, b.Start)
	end := min(uint64(a.Start)+uint64(a.Count), uint64(b.Start)+uint64(b.Count))
	if end <= uint64(start) {
		return idrange.Range{}, false
	}
	return idrange.Range{Start: start, Count: uint32(end - uint64(start))}, true
}

// readSubIDs reads one file, which need not be there. Lines that are not
// understood are passed over, as the programs of shadow do it.
func readSubIDs(path string, owner ...string) (own, others []idrange.Range, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		w := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(w) != 3 || strings.HasPrefix(w[0], "#") {
			continue
		}
		start, err := strconv.ParseUint(w[1], 10, 32)
		count, cerr := strconv.ParseUint(w[2], 10, 32)
		if err != nil || cerr != nil || start == 0 || count == 0 {
			continue
		}
		r := idrange.Range{Start: uint32(start), Count: uint32(min(count, 1<<32-1-start))}
		if slices.Contains(owner, w[0]) {
			own = append(own, r)
		} else {
			others = append(others, r)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return own, others, nil
}
