package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// maxAccounts bounds what is read of the image's /etc/passwd and /etc/group.
const maxAccounts = 16 << 20

// userLine is one line of the image's /etc/passwd. Numbers stay text until
// somebody is to run by them: a line that nobody asks for may say what it
// likes, one that is asked for must not turn into another user, least of all
// into number 0.
type userLine struct {
	name, uid, gid, home, shell string
}

type groupLine struct {
	name, gid string
	members   []string
}

// readPasswd and readGroup return nothing for an image that has no such file.
func readPasswd(r *root) ([]userLine, error) {
	var list []userLine
	err := readAccounts(r, "/etc/passwd", func(f []string) {
		list = append(list, userLine{name: f[0], uid: f[2], gid: f[3], home: f[5], shell: f[6]})
	})
	return list, err
}

func readGroup(r *root) ([]groupLine, error) {
	var list []groupLine
	err := readAccounts(r, "/etc/group", func(f []string) {
		list = append(list, groupLine{name: f[0], gid: f[2], members: strings.Split(f[3], ",")})
	})
	return list, err
}

// readAccounts hands on the fields of each line, missing ones as empty.
func readAccounts(r *root, name string, line func(fields []string)) error {
	data, err := r.read(name, maxAccounts)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("image's accounts: %w", err)
	}
	for text := range strings.Lines(string(data)) {
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			continue
		}
		fields := make([]string, 7)
		copy(fields, strings.SplitN(text, ":", 7))
		line(fields)
	}
	return nil
}

// parseID is a user's or group's number. The last one of 32 bits is what the
// kernel takes for "leave it", and more bits would be cut off.
func parseID(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n == math.MaxUint32:
		return 0, errs.Newf(errs.Usage, "%q: out of range", s)
	case err != nil:
		return 0, errs.Newf(errs.Usage, "%q: not a number", s)
	}
	return int(n), nil
}

// ids are the two numbers of a line by which somebody is to run.
func (u *userLine) ids() (uid, gid int, err error) {
	if uid, err = parseID(u.uid); err == nil {
		gid, err = parseID(u.gid)
	}
	if err != nil {
		return 0, 0, errs.Newf(errs.Usage, "image's /etc/passwd: user %q: number %w", u.name, err)
	}
	return uid, gid, nil
}

func (g *groupLine) id() (int, error) {
	gid, err := parseID(g.gid)
	if err != nil {
		return 0, errs.Newf(errs.Usage, "image's /etc/group: group %q: number %w", g.name, err)
	}
	return gid, nil
}

// findUser returns the first line of the name, nil if there is none.
func findUser(passwd []userLine, name string) *userLine {
	return firstUser(passwd, func(u userLine) bool { return name != "" && u.name == name })
}

// findUID returns the first line with the number.
func findUID(passwd []userLine, uid int) *userLine {
	return firstUser(passwd, func(u userLine) bool {
		n, err := parseID(u.uid)
		return err == nil && n == uid
	})
}

func firstUser(passwd []userLine, is func(userLine) bool) *userLine {
	i := slices.IndexFunc(passwd, is)
	if i < 0 {
		return nil
	}
	return &passwd[i]
}
