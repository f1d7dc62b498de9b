package cell

import (
	"slices"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage1/launch"
)

// Command is what Exec must know of an app whose process it runs beside.
type Command struct {
	Name string   `json:"name"`
	UID  int      `json:"uid"`
	GID  int      `json:"gid"`
	Gids []int    `json:"gids"`
	Env  []string `json:"env"`
	Cwd  string   `json:"cwd"`
}

// CommandOf takes it from the app.
func CommandOf(app launch.App) Command {
	return Command{Name: app.Name, UID: app.UID, GID: app.GID, Gids: app.Gids, Env: app.Env, Cwd: app.Cwd}
}

// Beside is the command of a program that runs beside the app: with the app's
// own user, variables and folder unless it is said otherwise.
func (c Command) Beside(e launch.Exec, noNewPrivs bool) (Command, error) {
	if len(e.Argv) == 0 {
		return c, errs.Newf(errs.Usage, "program: none given")
	}
	run := c
	run.Env = slices.Concat(c.Env, e.Env)
	if e.Cwd != "" {
		run.Cwd = e.Cwd
	}
	if e.Root {
		run.UID, run.GID, run.Gids = 0, 0, nil
	}
	if u := e.User; u != nil {
		if noNewPrivs && u.UID != c.UID && c.UID != 0 {
			return c, errs.WithHint(errs.Newf(errs.Denied, "user %d: the app runs as %d with no-new-privileges: nothing in it can become another user", u.UID, c.UID),
				"leave the user out")
		}
		run.UID, run.GID, run.Gids = u.UID, u.GID, u.Gids
	}
	return run, nil
}
