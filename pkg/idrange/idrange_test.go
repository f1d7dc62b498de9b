package idrange

import (
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]string{
		"1:1": "1:1", "100000:65536": "100000:65536", "4294967294:1": "4294967294:1", "4294901759:65536": "4294901759:65536",
	} {
		r, err := Parse(s)
		if err != nil || r.String() != want {
			t.Errorf("%s: %v, %v", s, r, err)
		}
	}
	if r, err := Parse("auto"); r != nil || err != nil {
		t.Errorf("auto: %v, %v", r, err)
	}
	for _, s := range []string{
		"", ":", "1", "1:", ":1", "0:65536", "1:0", "-1:5", "1:-5", "a:b", "1:2:3", " 1:2", "4294967295:1", "4294967294:2",
		"4294967296:1", "1:4294967295", "99999999999999999999:1", "0x10:5", "+1:5",
	} {
		if r, err := Parse(s); !errs.Is(err, errs.Usage) {
			t.Errorf("%q: %v, %v", s, r, err)
		}
	}
}

func TestIDs(t *testing.T) {
	r := &Range{Start: 1000, Count: 10}
	for in, out := range map[int]int{0: 1000, 9: 1009} {
		if got := r.Host(in); got != out {
			t.Errorf("%d in the pod is %d on the host, not %d", in, got, out)
		}
		if got := r.Inside(out); got != in {
			t.Errorf("%d on the host is %d in the pod, not %d", out, got, in)
		}
	}
	if a, b, c, d := r.Host(10), r.Host(-1), r.Inside(999), r.Inside(1010); a != Overflow || b != Overflow || c != Overflow || d != Overflow {
		t.Errorf("ids outside: %d %d %d %d", a, b, c, d)
	}
	var none *Range
	if none.Host(5) != 5 || none.Inside(5) != 5 || !none.Has(1<<20) {
		t.Error("without a range ids are not what they are")
	}
	for _, other := range []struct {
		Range
		want bool
	}{{Range{1009, 1}, true}, {Range{1010, 1}, false}, {Range{1, 999}, false}, {Range{1, 1000}, true}, {Range{1, 5000}, true}, {Range{1004, 2}, true}} {
		if got := r.Overlaps(other.Range); got != other.want || other.Range.Overlaps(*r) != other.want {
			t.Errorf("%s and %s overlap: %t", r, &other.Range, got)
		}
	}
}
