package tests

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestThreatModel: the tests that the threat model names are there.
func TestThreatModel(t *testing.T) {
	text, err := os.ReadFile("../Documentation/devel/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]bool{}
	err = filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(code, -1) {
			defined[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1)
	for _, m := range named {
		if !defined[m[1]] {
			t.Errorf("there is no %s", m[1])
		}
	}
	if len(named) < 20 {
		t.Errorf("only %d tests are named", len(named))
	}
}
