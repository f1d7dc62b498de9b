package discovery

import (
	"reflect"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

func TestParse(t *testing.T) {
	for text, want := range map[string][]tag{
		"":                                       nil,
		"no tags":                                nil,
		`<meta name="other" content="a b">`:      nil,
		`<meta name=ac-discovery content="a b">`: {{imageTag, "a", "b"}},
		`<META NAME='ac-discovery' CONTENT=' a  b '/>`:                {{imageTag, "a", "b"}},
		`<meta content="a b" name="ac-discovery-pubkeys">`:            {{keyTag, "a", "b"}},
		`<meta name="AC-discovery" content="a b">`:                    nil,
		`<meta name="ac-discovery" content="a b c">`:                  nil,
		`<!-- <meta name="ac-discovery" content="a b"> -->`:           nil,
		`<script><meta name="ac-discovery" content="a b"></script>`:   nil,
		`<meta name="ac-discovery" content="a&amp;b c">`:              {{imageTag, "a&b", "c"}},
		`</meta name="ac-discovery" content="a b">`:                   nil,
		strings.Repeat(`<meta name="ac-discovery" content="a b">`, 2): {{imageTag, "a", "b"}, {imageTag, "a", "b"}},
	} {
		got, err := parse([]byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	many, err := parse([]byte(strings.Repeat(`<meta name="ac-discovery" content="a b">`, maxTags+5)))
	if err != nil || len(many) != maxTags {
		t.Errorf("%d tags, %v", len(many), err)
	}
	if _, err := parse([]byte("<meta name=\"" + strings.Repeat("x", maxToken))); err == nil {
		t.Error("a tag without an end")
	}
}

func TestParents(t *testing.T) {
	for name, want := range map[string]string{"a/b/c": "a/b", "a/b": "a", "a": ""} {
		if got := parent(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`<meta name="ac-discovery" content="example.com/app https://example.com/{name}-{version}.{ext}">`))
	c := &Client{}
	f.Fuzz(func(t *testing.T, page []byte) {
		tags, err := parse(page)
		if err != nil {
			return
		}
		for _, u := range c.images(tags, fetchwire.DiscoverRequest{Name: "example.com/app"}) {
			if !strings.HasPrefix(strings.ToLower(u.ACI), "https://") || strings.Contains(u.ACI, "{ext}") {
				t.Errorf("%+v", u)
			}
		}
	})
}
