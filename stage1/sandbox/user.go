package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/plan"
)

// account is who an app runs as, as its own rootfs tells.
type account struct {
	uid, gid          int
	groups            []int
	name, home, shell string
}

// maxAccounts bounds what is read of the image's /etc/passwd and /etc/group.
const maxAccounts = 16 << 20

// lookupUser finds user and group as the specification orders it: a name in
// the image's own files, also one that is all digits, then a number, then the
// owner of a file.
func lookupUser(r *root, app plan.App) (account, error) {
	var a account
	passwd, err := readAccounts(r, "/etc/passwd", user.ParsePasswd)
	if err != nil {
		return a, err
	}
	group, err := readAccounts(r, "/etc/group", user.ParseGroup)
	if err != nil {
		return a, err
	}
	entry := findUser(passwd, app.User)
	switch {
	case entry != nil:
		a.uid = entry.Uid
	default:
		a.uid, err = number(r, "user", "/etc/passwd", app.User, func(st unix.Stat_t) uint32 { return st.Uid })
		if err != nil {
			return a, err
		}
		i := slices.IndexFunc(passwd, func(u user.User) bool { return u.Uid == a.uid })
		if i >= 0 {
			entry = &passwd[i]
		}
	}
	if entry != nil {
		a.name, a.home, a.shell = entry.Name, entry.Home, entry.Shell
	} else {
		a.name = strconv.Itoa(a.uid)
	}
	if err := a.findGroups(r, app, entry, passwd, group); err != nil {
		return a, err
	}
	return a, nil
}

func findUser(passwd []user.User, name string) *user.User {
	i := slices.IndexFunc(passwd, func(u user.User) bool { return u.Name == name && name != "" })
	if i < 0 {
		return nil
	}
	return &passwd[i]
}

func (a *account) findGroups(r *root, app plan.App, entry *user.User, passwd []user.User, group []user.Group) (err error) {
	i := slices.IndexFunc(group, func(g user.Group) bool { return g.Name == app.Group && g.Name != "" })
	switch {
	case app.GroupIsUser:
		a.gid = groupOfUser(passwd, app.Group)
	case i >= 0:
		a.gid = group[i].Gid
	case app.Group == "" && entry != nil:
		a.gid = entry.Gid
	case app.Group == "":
		a.gid = 0
	default:
		a.gid, err = number(r, "group", "/etc/group", app.Group, func(st unix.Stat_t) uint32 { return st.Gid })
		if err != nil {
			return err
		}
	}
	a.groups = slices.Clone(app.Groups)
	if app.GroupsFromFile && entry != nil {
		for _, g := range group {
			if slices.Contains(g.List, entry.Name) {
				a.groups = append(a.groups, g.Gid)
			}
		}
	}
	slices.Sort(a.groups)
	a.groups = slices.Compact(a.groups)
	return nil
}

// groupOfUser is the own group of a user that is given by name or number, and
// root's for one who is not listed.
func groupOfUser(passwd []user.User, name string) int {
	if u := findUser(passwd, name); u != nil {
		return u.Gid
	}
	uid, err := strconv.Atoi(name)
	i := slices.IndexFunc(passwd, func(u user.User) bool { return err == nil && u.Uid == uid })
	if i < 0 {
		return 0
	}
	return passwd[i].Gid
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
	n, err := strconv.ParseUint(s, 10, 32)
	switch {
	case err == nil && n != math.MaxUint32: // which the kernel takes for "leave it"
		return int(n), nil
	case err == nil || errors.Is(err, strconv.ErrRange):
		return 0, errs.Newf(errs.Usage, "%s %s: out of range", what, s)
	}
	return 0, errs.WithHint(errs.Newf(errs.NotFound, "%s %q: not in the image's %s", what, s, file),
		"a number works without an entry")
}

func readAccounts[T any](r *root, name string, parse func(rd io.Reader) ([]T, error)) ([]T, error) {
	data, err := r.read(name, maxAccounts)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("image's accounts: %w", err)
	}
	list, err := parse(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("image's accounts: %s: %w", name, err)
	}
	return list, nil
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
