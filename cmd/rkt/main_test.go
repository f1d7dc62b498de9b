package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// exec runs the whole program in this process, on a data folder that was never
// made.
func exec(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	var files []*os.File
	for _, name := range []string{"stdin", "stdout", "stderr"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	none := filepath.Join(dir, "none")
	args = append([]string{"--dir=" + none, "--system-config=" + none, "--local-config=" + none}, args...)
	code = run(t.Context(), args, files[0], files[1], files[2])
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(data), dir, "DIR")
	}
	if _, err := os.Stat(none); err == nil {
		t.Errorf("%v made the data folder", args)
	}
	return code, read("stdout"), read("stderr")
}

// TestWithoutData: what each command says where nothing is.
func TestWithoutData(t *testing.T) {
	const legend = "UUID\tAPP\tIMAGE NAME\tSTATE\tCREATED\tSTARTED\tNETWORKS\tNAME\n"
	cases := []struct {
		line           string
		code           int
		stdout, stderr string // parts; "" means empty
	}{
		{"", 254, "", "rkt: missing command\n"},
		{"bogus", 254, "", `rkt: unknown command "bogus" for "rkt"`},
		{"lsit", 254, "", `did you mean "list"?`},
		{"list", 0, legend, ""},
		{"list --no-legend", 0, "", ""},
		{"list --format=json", 0, "[]\n", ""},
		{"list --format=xml", 254, "", "list: --format=xml: not json or json-pretty"},
		{"list x", 254, "", `list: unexpected argument "x"`},
		{"list --bogus", 254, "", "list: unknown flag: --bogus\nlist: hint: \"rkt help list\" shows the flags\n"},
		{"gc", 0, "", ""},
		{"gc --dry-run", 0, "", ""},
		{"gc --format=json", 0, `{"done":[],"kept":[],"freed":0,"store":{"layers":[],"blobs":[],"staging":[],"freed":0},"volumes":[],"failures":[]}`, ""},
		{"gc --format=json --dry-run", 0, `{"steps":[],"kept":[],"store":{"layers":[],"blobs":[],"staging":[],"freed":0},"volumes":[],"failures":[]}`, ""},
		{"image list --format=json", 0, "[]\n", ""},
		{"image", 254, "", "image: missing command\n"},
		{"image list --fields=x", 254, "", `image list: --fields: unknown field "x"`},
		{"image rm", 254, "", "image rm: must provide at least one image ID"},
		{"status ab", 254, "", `status: no matches found for "ab"`},
		{"status", 254, "", "status: a pod's UUID is needed"},
		{"status --wait=soon ab", 254, "", "neither true, false nor a duration"},
		{"status --format=json ab", 254, "", `{"error":{"class":"not-found","message":"no matches found for \"ab\""`},
		{"status --wait-ready ab", 254, "", "status: no matches found for \"ab\"\n"},
		{"status --uuid-file=DIR/x", 254, "", "status: --uuid-file: "},
		{"stop ab", 254, "", `stop: no matches found for "ab"`},
		{"rm ab cd", 254, "", `rm: no matches found for "ab"`},
		{"enter", 254, "", "enter: a pod's UUID is needed"},
		{"logs ab", 254, "", `logs: no matches found for "ab"`},
		{"cat-manifest ab", 254, "", `cat-manifest: no matches found for "ab"`},
		{"run-prepared --stage1-path=/no/such/file ab", 254, "", "/no/such/file"},
		{"prepare", 254, "", "prepare: must provide at least one image or specify the pod manifest"},
		{"prepare --no-overlay a", 254, "", "prepare: flag --no-overlay: not supported yet\n"},
		{"fetch", 254, "", "fetch: must provide at least one image"},
		{"fetch a -- b", 254, "", "fetch: app arguments unsupported"},
		{"--cpuprofile=x list", 254, "", "list: flag --cpuprofile=x: not supported yet"},
		{"trust", 254, "", "trust: must provide a key, or the --prefix to look for one"},
		{"trust a", 254, "", "trust: --root required for non-prefixed (root) keys"},
		{"trust --root --prefix=a b", 254, "", "trust: --root required"},
		{"trust --prefix=https://a", 254, "", "has a scheme"},
		{"trust --list --format=json --local-config=DIR --system-config=DIR", 0, "[]\n", ""},
		{"trust --list a", 254, "", "trust: --list goes alone"},
		{"trust --remove=ab --local-config=DIR --system-config=DIR", 254, "", `trust: key "ab": not trusted`},
		{"trust --prefix=a ftp://b/c", 254, "", "neither a file nor an http or https URL"},
		{"trust --prefix=a http://b/c", 254, "", "a key over plain http may be anybody's"},
		{"auth", 254, "", "auth: missing command"},
		{"auth explain", 254, "", "auth explain: must provide one image"},
		{"auth explain ./x", 254, "", "needs no credentials"},
		{"auth explain docker://r.example/x", 0, "SOURCE", ""},
		{"config", 0, `"stage0"`, ""},
		{"version", 0, "appc Version: 0.8.11\n", ""},
		{"help", 0, "run-prepared", ""},
		{"help image rm", 0, "rkt image rm IMAGE…", ""},
		{"help bogus", 254, "", "unknown command"},
		{"run --help", 0, "--uuid-file-save", ""},
		{"--help", 0, "run-prepared", ""},
		{"completion bash", 0, "__start_rkt", ""},
		{"completion zsh", 0, "#compdef rkt", ""},
		{"completion fish", 0, "complete -c rkt", ""},
		{"list --format=foo", 254, "", "list: hint: leave --format out for text\n"},
		{"gc foo", 254, "", "gc: hint: \"rkt help gc\" shows how it is called\n"},
		{"run --nice=1", 254, "", "--nice must follow an image\nrun: hint: "},
		{"prepare a --stdin=tty", 254, "", "prepare: flag --stdin=tty: not supported yet\nprepare: hint: leave --stdin out"},
		{"prepare --pod-manifest=/etc/passwd", 254, "", "looking for beginning of value\nprepare: hint: "},
		{"prepare --pod-manifest=/etc", 254, "", "prepare: --pod-manifest: /etc: is a folder, not a file\nprepare: hint: "},
		{"prepare --set-env-file=/no/such/file a", 254, "", "prepare: --set-env-file: stat /no/such/file: no such file or directory\nprepare: hint: "},
		{"prepare --set-env-file=/etc/passwd a", 254, "", "prepare: --set-env-file: /etc/passwd:1: "},
		{"gc --grace-period=-1s", 254, "", "gc: invalid argument \"-1s\" for \"--grace-period\" flag: "},
		{"image gc --grace-period=-5h", 254, "", "not a duration such as 10s\n"},
		{"gc --expire-prepared=-5h", 254, "", "not a duration such as 10s\n"},
		{"status --wait=-1s ab", 254, "", "neither true, false nor a duration"},
		{"run a --stop-timeout=-1s", 254, "", "not a duration such as 10s\n"},
		{"run --stage1-path=/nope a", 254, "", "run: stage1: /nope: ask for its version: no such file or directory\nrun: hint: --stage1-path"},
		{"run-prepared --stage1-path=/bin/false a", 254, "", "run-prepared: stage1: /bin/false: ask for its version: exit status 1\nrun-prepared: hint: "},
		{"status --uuid-file=/etc/passwd", 254, "", `status: --uuid-file: /etc/passwd: "root:x:0:0:root:/root:/bin/bash\n`},
		{"status --uuid-file=/dev/zero", 254, "", "status: --uuid-file: /dev/zero: is a device, not a file\nstatus: hint: "},
		{"stop --uuid-file=/dev/null", 254, "", "stop: --uuid-file: /dev/null: is empty\nstop: hint: "},
		{"prepare a --caps-retain=CAP_NOPE", 254, "", `"CAP_NOPE": no such capability`},
		{"prepare a --caps-remove=net_admin,nope", 254, "", `"nope": no such capability`},
		{"completion tcsh", 254, "", "completion: the shell is needed"},
		{"rm-after ab 3", 254, "", "not a UUID"},
	}
	if os.Geteuid() != 0 {
		t.Fatal("root is needed: most commands refuse others first")
	}
	for _, c := range cases {
		code, stdout, stderr := exec(t, strings.Fields(c.line)...)
		bad := code != c.code || code == codeError && !strings.Contains(stderr, "hint")
		for _, part := range []struct{ got, want string }{{stdout, c.stdout}, {stderr, c.stderr}} {
			bad = bad || part.want == "" && part.got != "" || !strings.Contains(part.got, part.want)
		}
		if bad {
			t.Errorf("%q: %d\nstdout: %s\nstderr: %s\nwant: %d %q %q", c.line, code, stdout, stderr, c.code, c.stdout, c.stderr)
		}
	}
}

// TestFlagsKnown: every flag of rkt 1.30 parses.
func TestFlagsKnown(t *testing.T) {
	global := "debug dir local-config system-config user-config insecure-options trust-keys-from-https cpuprofile memprofile help"
	pod := "stage1-url stage1-path stage1-name stage1-hash stage1-from-dir port volume mount inherit-env set-env set-env-file no-overlay private-users pod-manifest pull-policy store-only no-store " +
		"name exec working-dir readonly-rootfs user group supplementary-gids environment annotation user-annotation user-label signature " +
		"memory cpu cpu-shares caps-retain caps-remove cap-retain cap-remove seccomp oom-score-adj stdin stdout stderr"
	run := "net dns dns-search dns-opt dns-domain hosts-entry interactive mds-register hostname ipc"
	for command, flags := range map[string]string{
		"fetch": "full signature pull-policy store-only no-store", "prepare": pod + " quiet", "run": pod + " " + run + " uuid-file-save", "run-prepared": run,
		"enter": "app", "stop": "force uuid-file", "list": "full no-legend format", "status": "wait wait-ready uuid-file format", "cat-manifest": "pretty-print uuid-file",
		"gc": "grace-period expire-prepared mark-only", "rm": "uuid-file", "image list": "fields sort order full no-legend format", "image cat-manifest": "pretty-print",
		"image rm": "", "config": "pretty-print", "version": "", "completion": "",
	} {
		root := newRoot(&globals{})
		cmd, _, err := root.Find(strings.Fields(command))
		if err != nil {
			t.Errorf("%s: %v", command, err)
			continue
		}
		cmd.InitDefaultHelpFlag()
		fs := allFlags(cmd)
		for _, name := range strings.Fields(global + " " + flags) {
			if fs.Lookup(name) == nil {
				t.Errorf("%s: no flag --%s", command, name)
			}
		}
	}
}

// TestEveryCommandIsDescribed: help has something to say of each.
func TestEveryCommandIsDescribed(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.RunE == nil {
			t.Errorf("%s: no description, or does nothing", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&globals{}))
}
