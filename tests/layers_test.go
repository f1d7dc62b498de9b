package tests

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rkt-pods/rkt/"

// mayImport is the architecture: which part may import which, as prefixes of
// import paths below the module.
var mayImport = map[string][]string{
	"cmd/rkt":               {"stage0/", "pkg/"},
	"cmd/rkt-fetch":         {"stage0/transport", "pkg/"},
	"cmd/rkt-verify":        {"stage0/trust/sigcheck", "stage0/transport/confine", "pkg/"},
	"cmd/stage1":            {"stage1/", "pkg/"},
	"stage0/":               {"stage0/", "pkg/"},
	"stage0/transport":      {"stage0/transport", "pkg/"},
	"stage0/trust/sigcheck": {"stage0/trust/sigwire", "pkg/"},
	"stage1/":               {"stage1/", "pkg/"},
	"pkg/":                  {"pkg/"},
	"tests/images":          {"tests/images", "pkg/"},
	"tests":                 {"tests/", "pkg/"},
}

// pure packages touch neither files nor processes nor the network.
var pure = []string{"pkg/lifecycle", "pkg/appc", "pkg/podspec", "pkg/ref", "pkg/abi", "pkg/errs", "pkg/limits", "pkg/idrange", "stage1/launch/filter", "stage0/podplan", "stage0/kube", "stage1/plan"}

// onlyIn keeps a library out of everything but one package and the tests.
var onlyIn = map[string]string{
	"github.com/opencontainers/runc":    "stage1/launch/libcontainer",
	"github.com/opencontainers/cgroups": "stage1/launch/",
	"github.com/spf13/":                 "cmd/rkt",
	"github.com/ProtonMail/go-crypto":   "stage0/trust/sigcheck",
	module + "stage0/trust/sigcheck":    "cmd/rkt-verify",
	"net/http":                          "stage0/transport",
	"oras.land/":                        "stage0/transport/registry",
	"github.com/opencontainers/image-":  "stage0/transport/registry",
	"golang.org/x/net/html":             "stage0/transport/discovery",
	"golang.org/x/net/http":             "stage0/transport/web",
	"github.com/ulikunitz/xz":           "stage0/transport/unpack",
	"go.yaml.in/yaml":                   "stage0/kube",
}

// notLinked are packages that must be in none of the programs but rkt-fetch:
// they talk to strangers, or only fetching needs them and each start would pay.
var notLinked = []string{"net/http", "crypto/tls", "oras.land/", "github.com/ulikunitz/xz", "github.com/klauspost/compress", "golang.org/x/net/html", module + "stage0/transport"}

type goPackage struct {
	ImportPath string
	Doc        string
	Imports    []string
	GoFiles    []string
	CgoFiles   []string
}

func list(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,GoFiles,CgoFiles", "-tags", "seccomp", "./...")
	cmd.Dir = ".."
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all []goPackage
	for dec := json.NewDecoder(out); ; {
		var p goPackage
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		all = append(all, p)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d packages listed", len(all))
	}
	return all
}

// allowed finds the longest rule for a package.
func allowed(path string) []string {
	best := ""
	for rule := range mayImport {
		if (path == strings.TrimSuffix(rule, "/") || strings.HasPrefix(path, rule)) && len(rule) > len(best) {
			best = rule
		}
	}
	return mayImport[best]
}

func TestLayers(t *testing.T) {
	for _, p := range list(t) {
		rules := allowed(p.ImportPath)
		if rules == nil {
			t.Errorf("%s: no rule says what it may import", p.ImportPath)
		}
		for _, imported := range p.Imports {
			own, isOwn := strings.CutPrefix(imported, module)
			ok := !isOwn || slices.ContainsFunc(rules, func(r string) bool { return strings.HasPrefix(own, r) })
			if !ok {
				t.Errorf("%s imports %s", p.ImportPath, own)
			}
			for lib, place := range onlyIn {
				if strings.HasPrefix(imported, lib) && !strings.HasPrefix(p.ImportPath, place) && !strings.HasPrefix(p.ImportPath, "tests/") {
					t.Errorf("%s imports %s, which only %s may", p.ImportPath, imported, place)
				}
			}
		}
	}
}

func TestOnlyRktFetchTalksToStrangers(t *testing.T) {
	for _, program := range []string{"rkt", "rkt-verify", "stage1", "rkt-fetch"} {
		cmd := exec.Command("go", "list", "-deps", "-tags", "seccomp", "./cmd/"+program)
		cmd.Dir = ".."
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, linked := range strings.Fields(string(out)) {
			// What confines rkt-fetch confines another one too.
			if linked == module+"stage0/transport/confine" && program == "rkt-verify" {
				continue
			}
			if !slices.ContainsFunc(notLinked, func(p string) bool { return strings.HasPrefix(linked, p) }) {
				continue
			}
			found++
			if program != "rkt-fetch" {
				t.Errorf("%s links %s", program, linked)
			}
		}
		if program == "rkt-fetch" && found < len(notLinked) {
			t.Errorf("rkt-fetch links %d of these packages only: the list is out of date", found)
		}
	}
}

// TestLaunchers: stage1 starts apps without libcontainer and libseccomp, which
// would cost each start, and the build that has them still builds.
func TestLaunchers(t *testing.T) {
	for tags, want := range map[string]bool{"netgo,osusergo": false, "libcontainer,seccomp,runc_nocriu,netgo,osusergo": true} {
		cmd := exec.Command("go", "vet", "-tags", tags, "./cmd/stage1")
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", tags, err, out)
		}
		cmd = exec.Command("go", "list", "-deps", "-tags", tags, "./cmd/stage1")
		cmd.Dir = ".."
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, lib := range []string{"github.com/opencontainers/runc/libcontainer\n", "github.com/seccomp/libseccomp-golang\n"} {
			if strings.Contains(string(out), lib) != want {
				t.Errorf("%s: links %q: %v", tags, lib, !want)
			}
		}
	}
}

func TestPurePackages(t *testing.T) {
	forbidden := []string{"os", "os/exec", "syscall", "net", "net/http"}
	found := 0
	for _, p := range list(t) {
		if !slices.Contains(pure, p.ImportPath) {
			continue
		}
		found++
		for _, imported := range p.Imports {
			if slices.Contains(forbidden, imported) {
				t.Errorf("%s is pure and imports %s", p.ImportPath, imported)
			}
			if imported == "golang.org/x/sys/unix" {
				checkNamesOnly(t, p)
			}
		}
	}
	if found != len(pure) {
		t.Errorf("%d of %d pure packages exist", found, len(pure))
	}
}

// checkNamesOnly lets a pure package use unix for the names of errors, which
// are tables, and for nothing that calls the kernel.
func checkNamesOnly(t *testing.T, p goPackage) {
	t.Helper()
	for _, file := range p.GoFiles {
		data, err := os.ReadFile(filepath.Join("..", p.ImportPath, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, use := range regexp.MustCompile(`\bunix\.(\w+)`).FindAllStringSubmatch(string(data), -1) {
			if use[1] != "Errno" && use[1] != "ErrnoName" && !regexp.MustCompile(`^E[A-Z]+$`).MatchString(use[1]) {
				t.Errorf("%s is pure and uses %s in %s", p.ImportPath, use[0], file)
			}
		}
	}
}

func TestPackageComments(t *testing.T) {
	for _, p := range list(t) {
		if p.Doc == "" && len(p.GoFiles)+len(p.CgoFiles) > 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// TestDependenciesHaveReasons: each direct dependency stands, with its reason,
// on the page of dependencies.
func TestDependenciesHaveReasons(t *testing.T) {
	page, err := os.ReadFile("../Documentation/devel/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "list", "-m", "-f", "{{if not (or .Indirect .Main)}}{{.Path}}{{end}}", "all")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(out))
	if len(modules) < 5 {
		t.Fatalf("only %d modules listed", len(modules))
	}
	for _, m := range modules {
		if !strings.Contains(string(page), m) {
			t.Errorf("%s has no reason", m)
		}
	}
}
