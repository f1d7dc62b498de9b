package libcontainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	rlc "github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/stage1/launch"
	"github.com/rkt-pods/rkt/stage1/launch/cell"
)

const stateFile = "state.json"

// Exec implements launch.Launcher. The library knows one cgroup a container,
// and v2 allows none below one with processes; so the process is started as
// one of a second container, whose state is the app's but for the cgroup.
func (l *launcher) Exec(ctx context.Context, stateDir, id string, e launch.Exec) (launch.Process, error) {
	state, cmd, err := appState(stateDir, id)
	if err != nil {
		return nil, err
	}
	p := &process{&cell.Process{Timeout: l.killTimeout}}
	if err := l.exec(ctx, p, stateDir, id, state, cmd, e); err != nil {
		return nil, named("run in", cmd.Name, e.Argv, errors.Join(err, p.abandon()))
	}
	return p, nil
}

func (l *launcher) exec(ctx context.Context, p *process, stateDir, id string, state *rlc.State, cmd cell.Command, e launch.Exec) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	as, err := cmd.Beside(e, state.Config.NoNewPrivileges)
	if err != nil {
		return err
	}
	limits, err := inherit(state)
	if err != nil {
		return err
	}
	n, err := p.makeLeaf(state)
	if err != nil {
		return err
	}
	child := id + "." + cell.ExecPrefix + strconv.Itoa(n)
	p.State = filepath.Join(stateDir, child)
	if err := writeState(p.State, state); err != nil {
		return err
	}
	c, err := rlc.Load(stateDir, child)
	if err != nil {
		return err
	}
	// Again, as late as can be: the namespaces are opened by pid.
	if status, err := c.Status(); err != nil || status != rlc.Running {
		return cell.NotRunning(id, err)
	}
	run := &rlc.Process{
		Args:             e.Argv,
		Env:              as.Env,
		Cwd:              as.Cwd,
		UID:              as.UID,
		GID:              as.GID,
		AdditionalGroups: as.Gids,
		Capabilities:     capabilities(as.UID, state.Config.Capabilities.Bounding),
	}
	for _, l := range limits {
		run.Rlimits = append(run.Rlimits, configs.Rlimit(l))
	}
	return p.run(ctx, e.Stdio, run.UID, &job{container: c, process: run})
}

// appState reads the state of a running app.
func appState(stateDir, id string) (*rlc.State, cell.Command, error) {
	c, err := rlc.Load(stateDir, id)
	if errors.Is(err, rlc.ErrNotExist) || errors.Is(err, fs.ErrNotExist) {
		return nil, cell.Command{}, cell.NotRunning(id, nil)
	}
	if err != nil {
		return nil, cell.Command{}, fmt.Errorf("execution %s: %w", id, err)
	}
	// Running also says that the main process has left the fifo behind.
	if status, err := c.Status(); err != nil || status != rlc.Running {
		return nil, cell.Command{}, cell.NotRunning(id, err)
	}
	state, err := c.State()
	if err != nil {
		return nil, cell.Command{}, fmt.Errorf("execution %s: %w", id, err)
	}
	for _, label := range state.Config.Labels {
		if text, ok := strings.CutPrefix(label, commandLabel); ok {
			var cmd cell.Command
			if err := json.Unmarshal([]byte(text), &cmd); err != nil {
				return nil, cell.Command{}, errs.Newf(errs.Corrupt, "execution %s: state: %w", id, err)
			}
			return state, cmd, nil
		}
	}
	return nil, cell.Command{}, errs.Newf(errs.Corrupt, "execution %s: state: no command in it", id)
}

// inherit puts into the state what a process takes from whoever starts it and
// not from the container: the caller can be a root shell with no limits, in
// another network namespace, and protected from the OOM killer.
func inherit(state *rlc.State) ([]cell.Rlimit, error) {
	pid := state.InitProcessPid
	limits, err := cell.RlimitsOf(pid)
	if err != nil {
		return nil, err
	}
	if state.Config.OomScoreAdj, err = cell.BesideScore(pid); err != nil {
		return nil, err
	}
	// The library starts its child in the rootfs, which is mounted in the
	// supervisor's namespace only; joining the app's leads to it anyhow.
	state.Config.Rootfs = "/"
	if !state.Config.Namespaces.Contains(configs.NEWNET) {
		// With host networking the app's is the supervisor's. Nothing is
		// created: a process that is no init joins all of the app's.
		state.Config.Namespaces.Add(configs.NEWNET, "")
	}
	return limits, nil
}

// makeLeaf makes apps/<app>/exec-<n>, n being the first that is free, in all
// hierarchies and with the app's device rules, and puts it into the state.
func (p *process) makeLeaf(state *rlc.State) (int, error) {
	main := state.CgroupPaths
	if main[""] == "" {
		_, err := cell.NewLeaf(main)
		return 0, err
	}
	n, name, err := cell.FreeLeaf(filepath.Dir(main[""]))
	if err != nil {
		return 0, err
	}
	paths := map[string]string{}
	for controller, path := range main {
		paths[controller] = filepath.Join(filepath.Dir(path), name)
	}
	if p.Leaf, err = cell.NewLeaf(paths); err != nil {
		return 0, err
	}
	conf := *state.Config.Cgroups
	if conf.Resources == nil {
		conf.Resources = &cgroups.Resources{}
	}
	conf.Path = filepath.Join(filepath.Dir(conf.Path), name)
	state.Config.Cgroups, state.CgroupPaths = &conf, paths
	m, err := manager.NewWithPaths(&conf, paths)
	if err == nil {
		err = m.Apply(-1)
	}
	if err == nil {
		err = m.Set(conf.Resources)
	}
	if err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", conf.Path, err)
	}
	group, err := cell.GroupAt(conf.Path)
	if err != nil {
		return 0, err
	}
	return n, group.InheritThrottle()
}

// writeState writes a state that Load finds. The folder's name comes with the
// cgroup leaf's, so what is there is of a process that is gone.
func writeState(dir string, state *rlc.State) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := fault.Step("launch.state"); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(dir, stateFile), state, 0o600, atomicfile.Renamed)
}
