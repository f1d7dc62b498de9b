package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/plan"
)

const (
	passwd = "root:x:0:0:root:/root:/bin/ash\napp:x:1000:1001:an app:/home/app:/bin/sh\n33:x:70:71::/home/33:/bin/false\nbroken line\n"
	groups = "root:x:0:\nwww:x:33:app,other\nadm:x:4:app\n44:x:80:\napp:x:1001:\n"
)

func TestLookupUser(t *testing.T) {
	f := newFixture(t)
	top := f.layer("etc/passwd="+passwd, "etc/group="+groups, "srv/owned=x", "srv/link -> owned")
	f.must(os.Chown(filepath.Join(top, "srv/owned"), 500, 600))
	r, err := openRoot(top, nil)
	f.must(err)
	defer r.close()
	bare, err := openRoot(f.layer("bin/"), nil)
	f.must(err)
	defer bare.close()
	for _, c := range []struct {
		name     string
		r        *root
		app      plan.App
		uid, gid int
		groups   []int
		home     string
	}{
		{"names", r, plan.App{User: "app", Group: "www"}, 1000, 33, nil, "/home/app"},
		{"a name of digits before the number", r, plan.App{User: "33", Group: "44"}, 70, 80, nil, "/home/33"},
		{"numbers that are listed", r, plan.App{User: "1000", Group: "4"}, 1000, 4, nil, "/home/app"},
		{"numbers that are not", r, plan.App{User: "4242", Group: "4343"}, 4242, 4343, nil, "/"},
		{"owners of files", r, plan.App{User: "/srv/owned", Group: "/srv/link"}, 500, 600, nil, "/"},
		{"listed groups, no others", r, plan.App{User: "app", Group: "app", Groups: []int{9, 3, 9}}, 1000, 1001, []int{3, 9}, "/home/app"},
		{"the user's own groups", r, plan.App{User: "app", GroupsFromFile: true, Groups: []int{5}}, 1000, 1001, []int{4, 5, 33}, "/home/app"},
		{"an OCI image's user", r, plan.App{User: "app", Group: "app", GroupIsUser: true, GroupsFromFile: true}, 1000, 1001, []int{4, 33}, "/home/app"},
		{"by number", r, plan.App{User: "1000", Group: "1000", GroupIsUser: true, GroupsFromFile: true}, 1000, 1001, []int{4, 33}, "/home/app"},
		{"not listed", r, plan.App{User: "77", Group: "77", GroupIsUser: true, GroupsFromFile: true}, 77, 0, nil, "/"},
		{"other user, the image's group", r, plan.App{User: "5", Group: "app", GroupIsUser: true}, 5, 1001, nil, "/"},
		{"root without any file", bare, plan.App{User: "root", Group: "root"}, 0, 0, nil, "/"},
		{"numbers without any file", bare, plan.App{User: "7", Group: "8"}, 7, 8, nil, "/"},
		{"nothing said", bare, plan.App{GroupsFromFile: true}, 0, 0, nil, "/"},
	} {
		a, err := lookupUser(c.r, c.app)
		if err != nil || a.uid != c.uid || a.gid != c.gid || !slices.Equal(a.groups, c.groups) {
			t.Errorf("%s: %d:%d %v, %v; want %d:%d %v", c.name, a.uid, a.gid, a.groups, err, c.uid, c.gid, c.groups)
		}
		if env := a.environment(nil); err == nil && plan.Getenv(env, "HOME") != c.home {
			t.Errorf("%s: environment %q", c.name, env)
		}
	}
	for _, c := range []struct {
		user, group, text string
		class             errs.Class
	}{
		{"nobody", "0", `user "nobody": not in the image's /etc/passwd`, errs.NotFound},
		{"0", "none", `group "none": not in the image's /etc/group`, errs.NotFound},
		{"/srv/none", "0", "owner of /srv/none", errs.NotFound},
		{"4294967295", "0", "out of range", errs.Usage},
		{"99999999999", "0", "out of range", errs.Usage},
		{"-1", "0", `user "-1"`, errs.NotFound},
	} {
		if _, err := lookupUser(r, plan.App{User: c.user, Group: c.group}); !errs.Is(err, c.class) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s:%s: %v", c.user, c.group, err)
		}
	}
}

// A number that is none, or none of 32 bits, must not become another user.
func TestNumbersOfAccounts(t *testing.T) {
	const fine = "root:x:0:0::/:/bin/sh\nok:x:5:6::/:/bin/sh\n"
	for _, bad := range []string{"4294967296", "4294967295", "18446744073709551616", "-1", "", "abc", "0x0", "+0", " 0", "1e3"} {
		f := newFixture(t)
		r, err := openRoot(f.layer(
			"etc/passwd="+fine+"+::::::\nbad:x:"+bad+":7::/:/bin/sh\nbadgroup:x:8:"+bad+"::/:/bin/sh\nshort\n",
			"etc/group=root:x:0:\nbad:x:"+bad+":member\nshort\n"), nil)
		f.must(err)
		defer r.close()
		for what, c := range map[string]struct {
			app  plan.App
			name string
		}{
			"user":                {plan.App{User: "bad"}, `user "bad"`},
			"user with a group":   {plan.App{User: "bad", Group: "ok"}, `user "bad"`},
			"own group":           {plan.App{User: "badgroup"}, `user "badgroup"`},
			"own group by number": {plan.App{User: "8"}, `user "badgroup"`},
			"group of a user":     {plan.App{User: "0", Group: "badgroup", GroupIsUser: true}, `user "badgroup"`},
			"group":               {plan.App{User: "0", Group: "bad"}, `group "bad"`},
		} {
			a, err := lookupUser(r, c.app)
			if !errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), c.name) || !strings.Contains(err.Error(), strconv.Quote(bad)) {
				t.Errorf("%s with number %q: %+v, %v", what, bad, a, err)
			}
		}
		if a, err := lookupUser(r, plan.App{User: "short", Group: "0"}); err == nil {
			t.Errorf("a line without numbers: %+v", a)
		}
		if a, err := lookupUser(r, plan.App{User: "0", Group: "short"}); err == nil {
			t.Errorf("a group without number: %+v", a)
		}
		if a, err := lookupUser(r, plan.App{User: "5", Group: "ghost", GroupIsUser: true}); err == nil {
			t.Errorf("the group of a user who is not there: %+v", a)
		}
		// Lines that nobody asks for harm nobody.
		if a, err := lookupUser(r, plan.App{User: "ok", GroupsFromFile: true}); err != nil || a.uid != 5 || a.gid != 6 {
			t.Errorf("beside the number %q: %+v, %v", bad, a, err)
		}
	}
	f := newFixture(t)
	r, err := openRoot(f.layer("etc/passwd=member:x:5:6::/:/bin/sh\n", "etc/group=bad:x:4294967297:member\n"), nil)
	f.must(err)
	defer r.close()
	if a, err := lookupUser(r, plan.App{User: "member", GroupsFromFile: true}); !errs.Is(err, errs.Usage) || !strings.Contains(err.Error(), `"4294967297"`) {
		t.Errorf("a supplementary group: %+v, %v", a, err)
	}
}

func TestAccountsStayInTheImage(t *testing.T) {
	f := newFixture(t)
	outside := filepath.Join(f.TempDir(), "passwd")
	f.must(os.WriteFile(outside, []byte("evil:x:0:0::/:/bin/sh\n"), 0o644))
	for name, entries := range map[string][]string{
		"absolute symlink": {"etc/passwd -> " + outside},
		"climbing symlink": {"etc/passwd -> ../../../../../.." + outside},
		"symlinked folder": {"etc -> " + filepath.Dir(outside)},
		"a folder":         {"etc/passwd/"},
		"a loop":           {"etc/passwd -> passwd"},
	} {
		r, err := openRoot(f.layer(entries...), nil)
		f.must(err)
		if a, err := lookupUser(r, plan.App{User: "evil", Group: "0"}); err == nil {
			t.Errorf("%s: found the user of a file outside: %+v", name, a)
		}
		r.close()
	}
}

func TestEnvironmentIsTheImagesFirst(t *testing.T) {
	a := account{uid: 5, name: "app", home: "/home/app"}
	got := a.environment([]string{"HOME=/mine", "SHELL=", "Z=1"})
	want := []string{"HOME=/mine", "LOGNAME=app", "SHELL=", "USER=app", "Z=1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
