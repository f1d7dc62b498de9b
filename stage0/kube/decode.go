package kube

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Problem is one thing in a Pod that rkt can't take as it is.
type Problem struct {
	Path string // such as spec.containers[0].image; "" for the file as a whole
	Line int    // 0 if it is about no line
	Text string
	// Ignorable says that the Pod can be run without what the problem is
	// about: an unknown field, or a known one that rkt can't honour. What is
	// plainly wrong is not ignorable.
	Ignorable bool
}

// Error is the problem without its line, which belongs to the file's name.
func (p Problem) Error() string {
	if p.Path == "" {
		return p.Text
	}
	return p.Path + ": " + p.Text
}

type (
	// refused is a field that is known and can't be honoured.
	refused struct{}
	// quantity is a string or a number, as it is written.
	quantity string
	// intOrString is the number of a port, or its name.
	intOrString string
)

// maxValues bounds how many values a Pod may have: aliases can make very many
// of a few lines.
const maxValues = 100_000

// decoder fills the types of this package from YAML. It notes where everything
// stands, so that what is found wrong later has a line too.
type decoder struct {
	lines    map[string]int
	problems []Problem
	values   int
}

// bad notes what is wrong.
func (d *decoder) bad(path, format string, args ...any) { d.note(path, false, format, args...) }

// unsupported notes what is fine and can't be honoured.
func (d *decoder) unsupported(path, format string, args ...any) {
	d.note(path, true, format, args...)
}

func (d *decoder) note(path string, ignorable bool, format string, args ...any) {
	p := Problem{Path: path, Text: fmt.Sprintf(format, args...), Ignorable: ignorable}
	// What is missing is reported at the line of what it is missing in.
	for at := path; p.Line == 0; at = at[:strings.LastIndexAny(at, ".[")] {
		p.Line = d.lines[at]
		if !strings.ContainsAny(at, ".[") {
			p.Line = cmp.Or(p.Line, d.lines[""])
			break
		}
	}
	d.problems = append(d.problems, p)
}

// parse reads the one document of the data; nil means that a problem says why
// there is none.
func (d *decoder) parse(data []byte) *yaml.Node {
	var found *yaml.Node
	for in := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := in.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF):
			if found == nil {
				d.bad("", "no Pod in it")
			}
			return found
		case err != nil:
			d.problems = append(d.problems, syntax(err))
			return nil
		case isEmpty(doc.Content[0]):
			continue
		case found != nil:
			d.problems = append(d.problems, Problem{Line: doc.Content[0].Line, Text: "a second document: one Pod is run at a time"})
			return nil
		}
		found = doc.Content[0]
	}
}

// syntax takes the line out of the library's words.
func syntax(err error) Problem {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	p := Problem{Text: "not YAML: " + text}
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		number, words, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			p.Line, p.Text = n, "not YAML: "+words
		}
	}
	return p
}

func isEmpty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" ||
		(n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && len(n.Content) == 0
}

// into decodes the node. Null is what is not there, as everywhere in
// Kubernetes.
func (d *decoder) into(n *yaml.Node, to reflect.Value, path string) {
	if _, known := d.lines[path]; !known {
		d.lines[path] = n.Line
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.values++; d.values > maxValues {
		if d.values == maxValues+1 {
			d.bad("", "more than %d values", maxValues)
		}
		return
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	switch to.Kind() {
	case reflect.Pointer:
		p := reflect.New(to.Type().Elem())
		d.into(n, p.Elem(), path)
		to.Set(p)
	case reflect.Struct:
		d.object(n, to, path)
	case reflect.Map:
		d.mapping(n, to, path)
	case reflect.Slice:
		d.list(n, to, path)
	default:
		d.scalar(n, to, path)
	}
}

// pairs calls each with every key of a mapping.
func (d *decoder) pairs(n *yaml.Node, path string, each func(key string, line int, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.bad(path, "is %s, not a mapping", kindOf(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			d.lines[path+".?"] = key.Line
			d.bad(path+".?", "a key that is no string")
		case seen[key.Value]:
			d.lines[path+"."+key.Value] = key.Line
			d.bad(join(path, key.Value), "given twice")
		default:
			seen[key.Value] = true
			each(key.Value, key.Line, n.Content[i+1])
		}
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (d *decoder) object(n *yaml.Node, to reflect.Value, path string) {
	d.pairs(n, path, func(key string, line int, value *yaml.Node) {
		at := join(path, key)
		d.lines[at] = line
		field, found := fieldOf(to.Type(), key)
		switch {
		case !found:
			d.unknown(to.Type(), at, key)
		case field.Type == reflect.TypeFor[refused]():
			if !isEmpty(value) {
				d.unsupported(at, "%s", sentence("not supported", field.Tag.Get("why")))
			}
		default:
			d.into(value, to.FieldByIndex(field.Index), at)
		}
	})
}

func sentence(text, why string) string {
	if why == "" {
		return text
	}
	return text + ": " + why
}

func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("kube") == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// unknown guesses what was meant where only the case differs.
func (d *decoder) unknown(t reflect.Type, path, key string) {
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("kube"); strings.EqualFold(name, key) {
			d.unsupported(path, "unknown field: did you mean %s?", name)
			return
		}
	}
	d.unsupported(path, "unknown field")
}

func (d *decoder) mapping(n *yaml.Node, to reflect.Value, path string) {
	to.Set(reflect.MakeMap(to.Type()))
	d.pairs(n, path, func(key string, line int, value *yaml.Node) {
		v := reflect.New(to.Type().Elem()).Elem()
		d.into(value, v, path+"["+key+"]")
		to.SetMapIndex(reflect.ValueOf(key), v)
	})
}

func (d *decoder) list(n *yaml.Node, to reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.bad(path, "is %s, not a list", kindOf(n))
		return
	}
	for i, item := range n.Content {
		v := reflect.New(to.Type().Elem()).Elem()
		d.into(item, v, fmt.Sprintf("%s[%d]", path, i))
		to.Set(reflect.Append(to, v))
	}
}

func (d *decoder) scalar(n *yaml.Node, to reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode {
		d.bad(path, "is %s, not %s", kindOf(n), wanted(to))
		return
	}
	tag := n.ShortTag()
	if word, ok := oldBool(n); ok {
		tag, n = "!!bool", word
	}
	switch {
	case to.Kind() == reflect.Bool && tag == "!!bool":
		to.SetBool(strings.EqualFold(n.Value, "true"))
	case to.Kind() == reflect.Int64 && tag == "!!int":
		var v int64
		if err := n.Decode(&v); err != nil {
			d.bad(path, "%s: not a whole number of 64 bits", n.Value)
			return
		}
		to.SetInt(v)
	case to.Kind() == reflect.String && (tag == "!!str" || tag == "!!timestamp" || takesNumbers(to, tag)):
		to.SetString(n.Value)
	case to.Kind() == reflect.String:
		d.bad(path, "is %s, not %s: put it in quotes", kindOf(n), wanted(to))
	default:
		d.bad(path, "is %s, not %s", kindOf(n), wanted(to))
	}
}

func takesNumbers(to reflect.Value, tag string) bool {
	switch to.Type() {
	case reflect.TypeFor[quantity]():
		return tag == "!!int" || tag == "!!float"
	case reflect.TypeFor[intOrString]():
		return tag == "!!int"
	}
	return false
}

// oldBool knows the words that are booleans in YAML 1.1, which is what
// Kubernetes reads, and strings in YAML 1.2.
func oldBool(n *yaml.Node) (*yaml.Node, bool) {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0 {
		return n, false
	}
	var value string
	switch n.Value {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
		value = "true"
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		value = "false"
	default:
		return n, false
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: value}, true
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
	}
	switch n.ShortTag() {
	case "!!bool":
		return "a boolean"
	case "!!int", "!!float":
		return "a number"
	case "!!str":
		return "a string"
	}
	return "of type " + n.ShortTag()
}

func wanted(to reflect.Value) string {
	switch {
	case to.Kind() == reflect.Bool:
		return "true or false"
	case to.Kind() == reflect.Int64:
		return "a whole number"
	case to.Type() == reflect.TypeFor[quantity]():
		return "a quantity"
	}
	return "a string"
}
