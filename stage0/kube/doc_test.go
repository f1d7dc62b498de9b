package kube

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// paths lists the fields of a type, those that are refused apart.
func paths(t reflect.Type, at string, supported, refusals *[]string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			at += "[]"
		}
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[refused]():
		*refusals = append(*refusals, at)
	case t.Kind() == reflect.Struct && t != reflect.TypeFor[hook]() && t != reflect.TypeFor[probe]() && !strings.HasPrefix(at, "spec.initContainers"):
		for i := range t.NumField() {
			name := t.Field(i).Tag.Get("kube")
			paths(t.Field(i).Type, join(at, name), supported, refusals)
		}
	default:
		*supported = append(*supported, at)
	}
}

// TestFieldsAreDocumented: the page names every field that rkt knows.
func TestFieldsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../Documentation/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	can, cannot, ok := strings.Cut(string(page), "## Refused")
	if !ok {
		t.Fatal("no section of what is refused")
	}
	var supported, refusals []string
	paths(reflect.TypeFor[document](), "", &supported, &refusals)
	for _, of := range []struct {
		name string
		t    reflect.Type
	}{
		{"probe", reflect.TypeFor[probe]()}, {"hook", reflect.TypeFor[hook]()},
	} {
		for i := range of.t.NumField() {
			paths(of.t.Field(i).Type, of.name+"."+of.t.Field(i).Tag.Get("kube"), &supported, &refusals)
		}
	}
	if len(supported) < 80 || len(refusals) < 60 {
		t.Fatalf("%d fields supported, %d refused", len(supported), len(refusals))
	}
	for section, list := range map[string][]string{can: supported, cannot: refusals} {
		for _, p := range list {
			p = strings.TrimSuffix(strings.TrimPrefix(p, "spec."), "[]")
			if !strings.Contains(section, "`"+p+"`") {
				t.Errorf("not on the page, or in the wrong section: %s", p)
			}
		}
	}
}
