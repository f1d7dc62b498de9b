package layer

import (
	"encoding/json"
	"testing"

	"github.com/rkt-pods/rkt/pkg/digest"
)

func TestKeys(t *testing.T) {
	d := digest.Of(digest.SHA256, nil)
	for _, kind := range []Kind{ACI, OCI, Fixup, Derived} {
		got, sum, err := ParseKey(Key(kind, d))
		if err != nil || got != kind || sum != d {
			t.Errorf("%s: %s %s, %v", kind, got, sum, err)
		}
	}
	for _, bad := range []string{"", "oci", "oci-", "oci-sha256:" + d.Hex, "oci-sha256-" + d.Hex[1:], "xyz-" + d.String(), "../" + d.String(), "oci-sha256-" + d.Hex + "/fs"} {
		if _, _, err := ParseKey(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestMadeKeysDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range []string{
		FixupKey([]string{"a", "b"}), FixupKey([]string{"b", "a"}), FixupKey([]string{"ab"}), FixupKey([]string{"a", "b", ""}),
		DerivedKey("a", [][]string{{"b"}}), DerivedKey("a", [][]string{{"b"}, {"c"}}), DerivedKey("a", [][]string{{"b", "c"}}),
		DerivedKey("a", [][]string{{"b\n1:c"}}), DerivedKey("a", nil),
	} {
		if _, _, err := ParseKey(key); err != nil || seen[key] {
			t.Errorf("%s: %v, or there twice", key, err)
		}
		seen[key] = true
	}
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"usr/bin", "a\\b", "\xff", `\x41`, `\\`, "é\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		data, err := json.Marshal(Path(s))
		if err != nil {
			t.Fatal(err)
		}
		var back Path
		if err := json.Unmarshal(data, &back); err != nil || string(back) != s {
			t.Errorf("%q became %s, then %q, %v", s, data, back, err)
		}
		// Any text is read or refused, without a panic.
		_ = back.UnmarshalText([]byte(s))
	})
}
