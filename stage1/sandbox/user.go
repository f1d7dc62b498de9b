package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// account is who an app runs as, as its own rootfs tells.
type account struct {
	uid, gid          int
	groups            []int
	name, home, shell string
}

// lookupUser finds user and group as the specification orders it: a name in
// the image's own files, also one that is all digits, then a number, then the
// owner of a file.
func lookupUser(r *root, app plan.App) (account, error) {
	var a account
	passwd, err := readPasswd(r)
	if err != nil {
		return a, err
	}
	group, err := readGroup(r)
	if err != nil {
		return a, err
	}
	entry := findUser(passwd, app.User)
	if entry == nil {
		a.uid, err = number(r, "user", "/etc/passwd", app.User, func(st unix.Stat_t) uint32 { return st.Uid })
		if err != nil {
			return a, err
		}
		entry = findUID(passwd, a.uid)
	}
	a.name = strconv.Itoa(a.uid)
	if entry != nil {
		if a.uid, a.gid, err = entry.ids(); err != nil {
			return a, err
		}
		a.name, a.home, a.shell = entry.name, entry.home, entry.shell
	}
	return a, a.findGroups(r, app, entry, passwd, group)
}

// findGroups leaves the user's own group where none is named.
func (a *account) findGroups(r *root, app plan.App, entry *userLine, passwd []userLine, group []groupLine) (err error) {
	i := slices.IndexFunc(group, func(g groupLine) bool { return g.name == app.Group && g.name != "" })
	switch {
	case app.GroupIsUser:
		a.gid, err = groupOfUser(r, passwd, app.Group)
	case i >= 0:
		a.gid, err = group[i].id()
	case app.Group != "":
		a.gid, err = number(r, "group", "/etc/group", app.Group, func(st unix.Stat_t) uint32 { return st.Gid })
	}
	if err != nil {
		return err
	}
	a.groups = slices.Clone(app.Groups)
	if app.GroupsFromFile && entry != nil {
		for _, g := range group {
			if !slices.Contains(g.members, entry.name) {
				continue
			}
			gid, err := g.id()
			if err != nil {
				return err
			}
			a.groups = append(a.groups, gid)
		}
	}
	slices.Sort(a.groups)
	a.groups = slices.Compact(a.groups)
	return nil
}

// groupOfUser is the own group of a user that is given by name or number, and
// root's for a number that is not listed.
func groupOfUser(r *root, passwd []userLine, name string) (int, error) {
	u := findUser(passwd, name)
	if u == nil {
		uid, err := number(r, "user", "/etc/passwd", name, func(st unix.Stat_t) uint32 { return st.Uid })
		if err != nil {
			return 0, err
		}
		if u = findUID(passwd, uid); u == nil {
			return 0, nil
		}
	}
	_, gid, err := u.ids()
	return gid, err
}

// number understands what is no name in the image: a number, the owner of a
// file of the image, and root, which an image without files has as well.
func number(r *root, what, file, s string, owner func(unix.Stat_t) uint32) (int, error) {
	if s == "" || s == "root" {
		return 0, nil
	}
	if strings.HasPrefix(s, "/") {
		st, err := r.stat(s)
		if err != nil {
			return 0, errs.Newf(errs.NotFound, "%s: owner of %s: %w", what, s, err)
		}
		return int(owner(st)), nil
	}
	if strings.Trim(s, "0123456789") == "" {
		n, err := parseID(s)
		if err != nil {
			return 0, fmt.Errorf("%s %w", what, err)
		}
		return n, nil
	}
	return 0, errs.WithHint(errs.Newf(errs.NotFound, "%s %q: not in the image's %s", what, s, file),
		"a number works without an entry")
}

// environment adds what a login would set, where neither image nor user did.
func (a account) environment(env []string) []string {
	def := func(value, otherwise string) string {
		if value == "" {
			return otherwise
		}
		return value
	}
	for _, kv := range [][2]string{
		{"HOME", def(a.home, "/")}, {"USER", a.name}, {"LOGNAME", a.name}, {"SHELL", def(a.shell, "/bin/sh")},
	} {
		if !slices.ContainsFunc(env, func(s string) bool { return strings.HasPrefix(s, kv[0]+"=") }) {
			env = append(env, kv[0]+"="+kv[1])
		}
	}
	slices.Sort(env)
	return env
}

// LookupUser finds a user of the image, and the group if one is named, in an
// app's root folder as it is now, with the variables that a login would set.
func LookupUser(rootfs *os.File, ids *idrange.Range, user, group string) (launch.User, []string, error) {
	r, err := openRoot(fdPath(int(rootfs.Fd())), ids)
	if err != nil {
		return launch.User{}, nil, err
	}
	defer r.close()
	a, err := lookupUser(r, plan.App{User: user, Group: group, GroupsFromFile: group == ""})
	if err != nil {
		return launch.User{}, nil, err
	}
	if err := checkIDs(ids, a); err != nil {
		return launch.User{}, nil, err
	}
	return launch.User{UID: a.uid, GID: a.gid, Gids: a.groups}, a.environment(nil), nil
}
