package podplan

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

var update = flag.Bool("update", false, "write the expected results anew")

// TestGolden runs each archive of testdata: options.json and the images'
// manifests in, plan.json and warnings, or error, out. With pod.json the
// manifest is reified instead of planned.
func TestGolden(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatal("no archives", err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { golden(t, path) })
	}
}

func golden(t *testing.T, path string) {
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string][]byte{}
	var inputs []txtar.File
	for _, f := range a.Files {
		in[f.Name] = f.Data
		if f.Name != "plan.json" && f.Name != "warnings" && f.Name != "error" {
			inputs = append(inputs, f)
		}
	}
	got := outcome(t, in)
	if *update {
		a.Files = append(inputs, got...)
		if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := len(inputs) + len(got)
	if len(a.Files) != want {
		t.Errorf("%d files, want %d: %v", len(a.Files), want, names(got))
	}
	for _, f := range got {
		if !bytes.Equal(f.Data, in[f.Name]) {
			t.Errorf("%s:\n%s\nwant:\n%s", f.Name, f.Data, in[f.Name])
		}
	}
}

func names(files []txtar.File) []string {
	var all []string
	for _, f := range files {
		all = append(all, f.Name)
	}
	return all
}

func outcome(t *testing.T, in map[string][]byte) []txtar.File {
	t.Helper()
	var o Options
	strict(t, in["options.json"], &o)
	for i := range o.Apps {
		name := o.Apps[i].Image.Name
		m, err := image.Parse(in[name])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		o.Apps[i].Manifest = m
		o.Apps[i].Image.ID = "sha512-" + strings.Repeat("0", 127) + string(rune('1'+i))
	}
	r, err := result(t, in["pod.json"], o)
	if err != nil {
		text := err.Error() + "\n"
		for _, h := range errs.Hints(err) {
			text += "hint: " + h + "\n"
		}
		return []txtar.File{{Name: "error", Data: []byte("class " + string(errs.ClassOf(err)) + "\n" + text)}}
	}
	data, err := r.Pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	out.WriteByte('\n')
	files := []txtar.File{{Name: "plan.json", Data: out.Bytes()}}
	if len(r.Warnings) > 0 {
		files = append(files, txtar.File{Name: "warnings", Data: []byte(strings.Join(r.Warnings, "\n") + "\n")})
	}
	return files
}

func result(t *testing.T, manifest []byte, o Options) (Result, error) {
	if manifest == nil {
		return Plan(o)
	}
	var pod podspec.Pod
	strict(t, manifest, &pod)
	return Reify(&pod, o.Apps)
}

// strict refuses misspelt fields, which would test nothing.
func strict(t *testing.T, data []byte, v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Fatal(err)
	}
}
