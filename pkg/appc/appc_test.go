package appc

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	cases := []struct {
		s                        string
		name, ident              bool // as read
		strictName, strictIdents bool // as written
	}{
		{"a", true, true, true, true},
		{"a-b", true, true, true, true},
		{"a--b", true, true, false, false},
		{"a/b.c", false, true, false, true},
		{"a//b", false, true, false, false},
		{"-a", false, false, false, false},
		{"a-", false, false, false, false},
		{"A", false, false, false, false},
		{"", false, false, false, false},
		{"a b", false, false, false, false},
		{"ä", false, false, false, false},
		{"/", false, false, false, false},
	}
	for _, c := range cases {
		for what, got := range map[string]bool{
			"CheckName": CheckName(c.s) == nil, "CheckIdentifier": CheckIdentifier(c.s) == nil,
			"StrictName": StrictName(c.s) == nil, "StrictIdentifier": StrictIdentifier(c.s) == nil,
		} {
			want := map[string]bool{
				"CheckName": c.name, "CheckIdentifier": c.ident, "StrictName": c.strictName, "StrictIdentifier": c.strictIdents,
			}[what]
			if got != want {
				t.Errorf("%s(%q): accepted %t, want %t", what, c.s, got, want)
			}
		}
	}
}

func TestSanitizeName(t *testing.T) {
	for in, want := range map[string]string{
		"example.com/etcd": "etcd", "Nginx_1.2": "nginx-1-2", "--x--": "x", "a/b/C..d": "c-d", "…": "", "/": "", "": "",
	} {
		got := SanitizeName(in)
		if got != want || got != "" && StrictName(got) != nil {
			t.Errorf("SanitizeName(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestQuantity(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "1": 1, "1.5": 2, "250m": 1, "1k": 1000, "1K": 1000, "2Ki": 2048, "0.5Mi": 1 << 19, "1e3": 1000, "1E": 1e18, "7Ei": 7 << 60, "1e-3": 1,
	} {
		q, err := ParseQuantity(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got, err := q.Ceil(); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", in, got, err, want)
		}
	}
	q, err := ParseQuantity("250m")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := q.Milli(); got != 250 || err != nil {
		t.Errorf("250m: %d thousandths, %v", got, err)
	}
	for _, in := range []string{"", "-1", "m", "1x", "1e999999999", "1 ", ".5", "+1", "0x1", strings.Repeat("9", 40)} {
		if _, err := ParseQuantity(in); err == nil {
			t.Errorf("%q: accepted", in)
		}
	}
	huge, err := ParseQuantity("16Ei")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := huge.Ceil(); err == nil {
		t.Error("16Ei fits into 63 bits")
	}
}

func TestIsolators(t *testing.T) {
	cases := map[string]string{ // value list → part of the error, "" for none
		`[]`: "",
		`[{"name":"os/linux/oom-score-adj","value":5}]`:                                                                                                    "",
		`[{"name":"os/linux/oom-score-adj","value":5000}]`:                                                                                                 "not in -1000…1000",
		`[{"name":"os/linux/oom-score-adj","value":"5"}]`:                                                                                                  "value",
		`[{"name":"os/linux/oom-score-adj"}]`:                                                                                                              "value: missing",
		`[{"name":"os/linux/oom-score-adj","value":1},{"name":"os/linux/oom-score-adj","value":2}]`:                                                        "isolators[1].name: os/linux/oom-score-adj: there are two",
		`[{"name":"os/linux/no-new-privileges","value":true},{"name":"os/linux/no-new-privileges","value":false}]`:                                         "",
		`[{"name":"os/linux/capabilities-retain-set","value":{"set":[]}}]`:                                                                                 "value.set: missing",
		`[{"name":"os/linux/capabilities-retain-set","value":{"set":["CAP_KILL"]}},{"name":"os/linux/capabilities-remove-set","value":{"set":["CAP_A"]}}]`: "exclude each other",
		`[{"name":"resource/memory","value":{"limit":"1G"}}]`:                                                                                              "",
		`[{"name":"resource/memory","value":{"limit":1048576}}]`:                                                                                           "",
		`[{"name":"resource/memory","value":{"limit":"1Q"}}]`:                                                                                              "not a quantity",
		`[{"name":"resource/memory","value":{"limit":"1G","default":true}}]`:                                                                               "value.default",
		`[{"name":"resource/block-iops","value":{"default":true,"limit":"1K"}}]`:                                                                           "",
		`[{"name":"resource/cpu","value":{}}]`:                                                                                                             "value.limit: missing",
		`[{"name":"os/unix/sysctl","value":{"net.x":"1"}}]`:                                                                                                "",
		`[{"name":"example.com/own","value":null}]`:                                                                                                        "",
		`[{"name":"Bad Name","value":1}]`:                                                                                                                  "isolators[0].name",
	}
	for text, want := range cases {
		var list []Isolator
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		err := CheckIsolators(list)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	last := GetIsolator([]Isolator{NewIsolator("a", 1), NewIsolator("b", 2), NewIsolator("a", 3)}, "a")
	if last == nil || string(last.Value) != "3" {
		t.Errorf("GetIsolator: %v", last)
	}
}

func TestAppValidate(t *testing.T) {
	cases := map[string]string{
		`{"user":"0","group":"0"}`: "",
		`{"group":"0"}`:            "user: missing",
		`{"user":"0"}`:             "group: missing",
		`{"user":"0","group":"0","supplementaryGIDs":[-1]}`:                                                          "supplementaryGIDs[0]",
		`{"user":"0","group":"0","workingDirectory":"rel"}`:                                                          `workingDirectory: "rel": not an absolute path`,
		`{"user":"0","group":"0","environment":[{"name":"A","value":""},{"name":"A","value":""}]}`:                   `environment[1].name: "A": there twice`,
		`{"user":"0","group":"0","environment":[{"name":"1A","value":""}]}`:                                          "environment[0].name",
		`{"user":"0","group":"0","environment":[{"name":"A","value":"\u0000"}]}`:                                     "environment[0].value",
		`{"user":"0","group":"0","exec":["a\u0000"]}`:                                                                "exec[0]",
		`{"user":"0","group":"0","eventHandlers":[{"name":"start","exec":["/x"]}]}`:                                  "eventHandlers[0].name",
		`{"user":"0","group":"0","eventHandlers":[{"name":"pre-start","exec":[]}]}`:                                  "eventHandlers[0].exec: missing",
		`{"user":"0","group":"0","mountPoints":[{"name":"a","path":"x"}]}`:                                           "mountPoints[0].path",
		`{"user":"0","group":"0","mountPoints":[{"name":"a","path":"/x"},{"name":"a","path":"/y"}]}`:                 "mountPoints[1].name",
		`{"user":"0","group":"0","ports":[{"name":"a","protocol":"tcp","port":0}]}`:                                  "ports[0].port",
		`{"user":"0","group":"0","ports":[{"name":"a","protocol":"tcp","port":65535,"count":2}]}`:                    "ports[0].count",
		`{"user":"0","group":"0","ports":[{"name":"a","protocol":"tcp","port":1,"count":18446744073709551615}]}`:     "ports[0].count",
		`{"user":"0","group":"0","ports":[{"name":"a","port":1}]}`:                                                   "ports[0].protocol",
		`{"user":"0","group":"0","isolators":[{"name":"os/linux/cpu-shares","value":1}]}`:                            "isolators[0]",
		`{"user":"0","group":"0","environment":[{"name":"a.b-c","value":"x=y"}],"supplementaryGids":[0,4294967294]}`: "",
	}
	for text, want := range cases {
		var a App
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		err := a.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestLabelsAndAnnotations(t *testing.T) {
	if (Labels{{"name", "x"}}).Validate() == nil || (Labels{{"a", "1"}, {"a", "2"}}).Validate() == nil {
		t.Error("bad labels accepted")
	}
	if err := (Labels{{"os", "linux"}, {"arch", "amd64"}}).Validate(); err != nil {
		t.Error(err)
	}
	var a Annotations
	a.Set("x", "1")
	a.Set("x", "2")
	if v, ok := a.Get("x"); v != "2" || !ok || len(a) != 1 {
		t.Errorf("annotations %v", a)
	}
	if (Annotations{{"a", "1"}, {"a", "2"}}).Validate() == nil {
		t.Error("annotation twice accepted")
	}
}
