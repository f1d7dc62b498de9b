package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// parseApps parses a line as run does.
func parseApps(words []string, noArgs bool) (*podFlags, *runFlags, *refusals, error) {
	var o podFlags
	var run runFlags
	var r refusals
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.declare(fs, &r)
	run.declare(fs, &r)
	return &o, &run, &r, o.apps.parse(fs, words, noArgs)
}

func describe(o *podFlags) string {
	var b strings.Builder
	for _, m := range o.apps.mounts {
		fmt.Fprintf(&b, "mount %s:%s ", m.Volume, m.Path)
	}
	for i, a := range o.apps.list {
		if i > 0 {
			b.WriteString(" + ")
		}
		b.WriteString(a.image)
		for _, m := range a.plan.Mounts {
			fmt.Fprintf(&b, " mount %s:%s", m.Volume, m.Path)
		}
		if a.plan.Name != "" {
			b.WriteString(" name=" + a.plan.Name)
		}
		if a.plan.Exec != "" {
			b.WriteString(" exec=" + a.plan.Exec)
		}
		if a.hasArgs {
			fmt.Fprintf(&b, " args=%q", a.plan.Args)
		}
	}
	return b.String()
}

func TestAppGrammar(t *testing.T) {
	cases := map[string]string{
		"a":                                    "a",
		"a b":                                  "a + b",
		"a --- b":                              "a + b",
		"--- a":                                "a",
		"a -- x -y --- b -- z":                 `a args=["x" "-y"] + b args=["z"]`,
		"a -- --- b":                           `a args=[] + b`,
		"a -- -- x":                            `a args=["--" "x"]`,
		"a --name=x b --name y":                "a name=x + b name=y",
		"a --exec /bin/x -- 1 2":               `a exec=/bin/x args=["1" "2"]`,
		"--mount volume=v,target=/t a b":       "mount v:/t a + b",
		"a --mount volume=v,target=/t b":       "a mount v:/t + b",
		"--set-env=A=1 a --no-overlay=false b": "a + b",
		"a -- --name=x":                        `a args=["--name=x"]`,
	}
	for line, want := range cases {
		o, _, _, err := parseApps(strings.Fields(line), false)
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		if got := describe(o); got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
	o, _, _, err := parseApps([]string{"", "a", "", "--", "", "x", ""}, false)
	if err != nil || describe(o) != `a args=["x"]` {
		t.Errorf("empty words: %s, %v", describe(o), err)
	}
}

func TestAppGrammarErrors(t *testing.T) {
	cases := map[string]string{
		"-- x":                             "an image is required before any app arguments",
		"a -- x --- -- y":                  "only one set of app arguments allowed per image",
		"--name=x a":                       "--name must follow an image",
		"--readonly-rootfs a":              "--readonly-rootfs must follow an image",
		"a --exec=1 --exec=2":              "--exec can be given once per image",
		"a --bogus":                        "unknown flag: --bogus",
		"a -x":                             "unknown shorthand flag",
		"a --name":                         "flag needs an argument: --name",
		"a --name=X":                       "not an AC Name",
		"a --mount volume=v":               "not volume=NAME,target=PATH",
		"--volume v,kind=x a":              "none of host, empty, tmpfs, named, image, secret",
		"--volume v,kind=host,source=x a":  "not an absolute path",
		"--volume v,kind=empty,colour=1 a": "unknown key",
		"--volume v,kind=empty,uid=x a":    "uid=x",
		"--volume v,kind=empty --volume v,kind=empty a": "duplicate volume name",
		"--volume V,kind=empty a":                       "not an AC Name",
		"--set-env=A=1 --set-env=A=2 a":                 "is set twice",
		"--set-env=A a":                                 "not NAME=VALUE",
		"--set-env=1A=x a":                              "not a name of a variable",
		"a --environment=A=1 --environment=A=2":         "is set twice",
		"a --supplementary-gids=x":                      "not a group id",
		"a --working-dir=x":                             "not an absolute path",
		"a --caps-retain=CHOWN --caps-remove=KILL":      "exclude each other",
		"a --caps-retain=CHOWN --caps-retain=KILL":      "is set twice",
		"a --seccomp=read":                              "neither retain nor remove",
		"a --seccomp=mode=retain":                       "value.set: missing",
		"a --oom-score-adj=2000":                        "not in -1000",
		"a --stdin=log":                                 "none of",
		"a --stop-timeout=-1s":                          "not a duration",
		"--net=host --net=none a":                       "can't be joined",
		"--net=host:IP=1 a":                             "takes no arguments",
		"--net=none --net=none a":                       "given twice",
		"--exit-policy=x a":                             "not all, any or anyOnFailure",
		"--ipc=x a":                                     "none of auto, private, parent",
		"--dns=x a":                                     "neither an IP address",
		"--hosts-entry=x a":                             "not NAME=VALUE",
		"--hostname=-x a":                               "not a host name",
		"--pull-policy=x a":                             "none of new, never, update",
		"--log-prefix=x a":                              "none of auto, always, never",
	}
	for line, want := range cases {
		if _, _, _, err := parseApps(strings.Fields(line), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
	if _, _, _, err := parseApps([]string{"a", "--", "b"}, true); err == nil || err.Error() != "app arguments unsupported" {
		t.Errorf("fetch: %v", err)
	}
}

// TestRefused: flags of later versions parse, and are refused by name.
func TestRefused(t *testing.T) {
	for _, line := range []string{
		"--no-overlay a", "--mds-register a",
		"--stage1-url=x a", "--stage1-name=x a", "--stage1-hash=x a", "--stage1-from-dir=x a", "--ipc=parent a",
		"a --stdin=stream", "a --stdout=null", "a --stderr=tty",
	} {
		_, _, r, err := parseApps(strings.Fields(line), false)
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		flag := strings.Fields(strings.TrimPrefix(line, "a "))[0]
		name, _, _ := strings.Cut(flag, "=")
		if err := r.err(); err == nil || !strings.HasPrefix(err.Error(), "flag "+name) || !strings.HasSuffix(err.Error(), ": not supported yet") {
			t.Errorf("%q: %v", line, err)
		}
	}
	_, _, r, err := parseApps(strings.Fields("--no-overlay=false --private-users=false --ipc=private --net=host a --stdin=null --stdout=log"), false)
	if err != nil || r.err() != nil {
		t.Errorf("what is the case anyway: %v, %v", err, r.err())
	}
}

func TestPrivateUsersFlag(t *testing.T) {
	for line, want := range map[string]string{
		"a": "", "--private-users a": "auto", "--private-users=true a": "auto", "--private-users=false a": "", "--private-users=auto a": "auto", "--private-users=5:6 a": "5:6",
	} {
		o, _, _, err := parseApps(strings.Fields(line), false)
		if err != nil || o.users != want {
			t.Errorf("%q: %q, %v", line, o.users, err)
		}
	}
	if _, _, _, err := parseApps(strings.Fields("--private-users=5 a"), false); err == nil {
		t.Error("half a range is taken")
	}
}

func TestRunOptions(t *testing.T) {
	words := strings.Fields("--net=host --hostname=h --dns=1.1.1.1 --dns=::1 --dns-search=a,b --dns-opt=rotate --dns-domain=d --hosts-entry=1.2.3.4=x,1.2.3.4=y a")
	_, run, _, err := parseApps(words, false)
	if err != nil {
		t.Fatal(err)
	}
	g := &globals{}
	if err := g.insecure.Set("all-run"); err != nil {
		t.Fatal(err)
	}
	o, err := run.finish(g, 1)
	if err != nil || strings.Join(o.DNS, " ") != "1.1.1.1 ::1" || len(o.DNSSearch) != 2 || len(o.Hosts) != 2 || !o.InsecureCaps || !o.InsecurePaths || !o.InsecureSeccmp || o.Net[0] != "host" {
		t.Errorf("%+v, %v", o, err)
	}
	for line, want := range map[string]string{
		"--dns=host --dns=1.1.1.1 a": "can't be joined", "--dns=none --dns-search=x a": "can't be joined",
		"--hosts-entry=host --hosts-entry=1.1.1.1=x a": "can't be joined", "--interactive a b": "exactly one app",
	} {
		o, run, _, err := parseApps(strings.Fields(line), false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.finish(&globals{}, len(o.apps.list)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", line, err)
		}
	}
	_, run, _, err = parseApps([]string{"a"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := run.finish(&globals{}, 1); err != nil || len(o.Net) != 1 || o.Net[0] != "default" || len(o.Networks) != 1 || o.InsecureCaps {
		t.Errorf("defaults %+v, %v", o, err)
	}
}

func TestInsecureOptions(t *testing.T) {
	for list, want := range map[string]string{
		"none": "", "image": "image", "image,tls": "image,tls", "all-fetch": "http,image,pubkey,tls", "all-run": "capabilities,paths,seccomp",
		"all": "capabilities,http,image,paths,pubkey,seccomp,tls", "ondisk": "",
	} {
		var i insecure
		if err := i.Set(list); err != nil || i.String() != want {
			t.Errorf("%s: %q, %v", list, i.String(), err)
		}
	}
	var i insecure
	if err := i.Set("imgae"); err == nil {
		t.Error("unknown option accepted")
	}
}

func TestNetFlags(t *testing.T) {
	for line, want := range map[string]string{
		"--net=default --net=default a": `network "default" is given twice`, "--net=host,default a": "network host can't be joined",
		"--net=default:IP=10.0.0.2;IP=10.0.0.3 a": "network default: argument IP is given twice",
		"--net=default,none a":                    "network none can't be joined", "--net=all:IP=1.2.3.4 a": `network all takes no arguments, such as "IP=1.2.3.4"`,
		"--net=a:IP a": `network a: argument "IP": not NAME=VALUE`, "--net=a, a": "network without a name",
		"--port=http a": "not NAME:[HOSTIP:]HOSTPORT", "--port=http:0 a": `"0": not a port`, "--port=http:x:80 a": `"x": not an IP address of the host`,
		"--port=http:70000 a": "not a port", "--port=http:1 --port=http:2 a": "port http is given twice", "--port=_:1 a": "_",
	} {
		if _, _, _, err := parseApps(strings.Fields(line), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
	o, run, _, err := parseApps(strings.Fields("--net=default-restricted:IP=172.31.0.9;K=V --net=default --port=http:192.0.2.1:80 --port=80-tcp:[2001:db8::1]:81 a"), false)
	if err != nil {
		t.Fatal(err)
	}
	options, err := run.finish(&globals{}, 1)
	if err != nil || len(options.Networks) != 2 || len(options.Networks[0].Args) != 2 || options.Networks[1].Name != "default" || len(options.PluginDirs) == 0 {
		t.Errorf("%+v, %v", options, err)
	}
	if len(o.ports) != 2 || o.ports[0].HostIP != "192.0.2.1" || o.ports[1].HostIP != "2001:db8::1" || o.ports[1].HostPort != 81 {
		t.Errorf("ports %+v", o.ports)
	}
}
