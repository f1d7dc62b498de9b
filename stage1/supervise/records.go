package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/atomicfile"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/idrange"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// inputs is what stage0 left for the supervisor, all of it immutable.
type inputs struct {
	manifest *podspec.Pod
	options  poddir.RunOptions
	images   map[string]poddir.AppImage
	created  time.Time
	ids      *idrange.Range // of the pod's user namespace, nil if it has none
}

func readInputs(dir poddir.Dir) (*inputs, error) {
	data, err := os.ReadFile(dir.Manifest())
	if err != nil {
		return nil, err
	}
	in := &inputs{images: map[string]poddir.AppImage{}}
	if in.manifest, err = podspec.Parse(data); err != nil {
		return nil, fmt.Errorf("pod manifest: %w", err)
	}
	if err := atomicfile.ReadJSON(dir.Run(), &in.options); err != nil {
		return in, err
	}
	var refs poddir.Refs
	if err := atomicfile.ReadJSON(dir.Refs(), &refs); err != nil {
		return in, err
	}
	in.created = refs.CreatedAt
	if in.ids, err = dir.ReadIDs(); err != nil {
		return in, err
	}
	for _, app := range in.manifest.Apps {
		var img poddir.AppImage
		if err := atomicfile.ReadJSON(dir.App(app.Name).Image(), &img); err != nil {
			return in, err
		}
		in.images[app.Name] = img
	}
	return in, nil
}

// records are the files by which the supervisor tells how the pod fares. They
// are written by the event loop alone.
type records struct {
	dir     poddir.Dir
	runDir  string
	summary poddir.Summary
	status  map[string]*poddir.Status
	dirty   bool // the summary lags behind
}

func newRecords(dir poddir.Dir, runDir string, in *inputs) *records {
	r := &records{dir: dir, runDir: runDir, status: map[string]*poddir.Status{}}
	r.summary = poddir.Summary{
		UUID: dir.UUID(), CreatedAt: in.created, State: "running", Networks: in.options.Net, IDs: in.ids, Apps: []poddir.SummaryApp{},
	}
	r.summary.Labels = in.manifest.UserLabels
	r.summary.Name, _ = in.manifest.Annotations.Get(podspec.AnnPodName)
	for _, app := range in.manifest.Apps {
		img := in.images[app.Name]
		r.status[app.Name] = &poddir.Status{App: app.Name, State: poddir.Waiting}
		r.summary.Apps = append(r.summary.Apps, poddir.SummaryApp{Name: app.Name, ImageID: img.ID, ImageName: image.Reference(img.Name, img.Labels)})
	}
	return r
}

func (r *records) attempt(app string) poddir.AttemptDir {
	return r.dir.App(app).Attempt(r.status[app].Attempt)
}

// What a pod needs of the disk once its first app may have filled it: three
// more statuses of each app, and exit.json.
const (
	reserveFiles = 3
	reserveSize  = 8 << 10 // of each: an error's text can be long
)

// begin makes the attempts' folders, each with the status of an app that
// waits, and the reserve for what follows.
func (r *records) begin() error {
	if err := r.dir.Reserve().Make(reserveFiles*len(r.summary.Apps)+1, reserveSize); err != nil {
		return err
	}
	for _, app := range r.summary.Apps {
		if err := fault.Step("attempt.create"); err != nil {
			return err
		}
		if err := os.MkdirAll(string(r.attempt(app.Name)), 0o700); err != nil {
			return err
		}
		if err := r.change(app.Name, func(*poddir.Status) {}); err != nil {
			return err
		}
	}
	return nil
}

// next makes the folder of the app's next execution, which waits for its time.
// After an error the last one's status stays the app's.
func (r *records) next(app string, restarts int) error {
	if err := fault.Step("attempt.create"); err != nil {
		return err
	}
	last := r.status[app]
	s := &poddir.Status{App: app, Attempt: restarts, Restarts: restarts, State: poddir.Backoff, Notes: last.Notes, Forgotten: last.Forgotten}
	r.status[app] = s
	err := os.MkdirAll(string(r.attempt(app)), 0o700)
	if err == nil {
		err = r.change(app, func(*poddir.Status) {})
	}
	if err != nil {
		r.status[app] = last
		return err
	}
	return nil
}

// readiness puts down whether the pod is ready, or what that waits for.
func (r *records) readiness(ready bool, awaiting string) {
	if r.summary.Ready != ready || r.summary.Awaiting != awaiting {
		r.summary.Ready, r.summary.Awaiting, r.dirty = ready, awaiting, true
	}
}

// change writes an app's new status. A final one is synced, for nobody may be
// told of an end that a power loss could undo.
func (r *records) change(app string, f func(*poddir.Status)) error {
	s := r.status[app]
	f(s)
	r.dirty = true
	d := atomicfile.Renamed
	if s.State == poddir.Exited {
		d = atomicfile.Synced
		// Missing if it could not be made at the beginning: the end has to be
		// written all the more.
		if err := os.MkdirAll(string(r.attempt(app)), 0o700); err != nil {
			return err
		}
	}
	return r.dir.Reserve().WriteJSON(r.attempt(app).Status(), s, 0o600, d)
}

// supervisor writes the record of this process, without a sync: it means
// nothing after this boot.
func (r *records) supervisor(s poddir.Supervisor) error {
	r.summary.Supervisor, r.dirty = &s, true
	return atomicfile.WriteJSON(r.dir.Supervisor(), s, 0o600, atomicfile.Renamed)
}

func (r *records) cgroup(c poddir.Cgroup) error {
	return atomicfile.WriteJSON(r.dir.Cgroup(), c, 0o600, atomicfile.Renamed)
}

func (r *records) exit(e poddir.Exit) error {
	r.summary.Exit, r.dirty = &e, true
	return r.dir.Reserve().WriteJSON(r.dir.Exit(), e, 0o600, atomicfile.Synced)
}

// publish writes the summary if anything in it has changed. Anyone on the host
// may read it, so it has nothing that could tell of arguments or environment;
// messages can quote both.
func (r *records) publish() error {
	if !r.dirty || !exists(r.runDir) {
		return nil
	}
	if err := atomicfile.WriteJSON(filepath.Join(r.runDir, poddir.SummaryFile), r.public(), 0o644, atomicfile.Renamed); err != nil {
		return err
	}
	r.dirty = false
	return nil
}

func (r *records) public() poddir.Summary {
	s := r.summary
	s.Apps = slices.Clone(s.Apps)
	for i := range s.Apps {
		status := *r.status[s.Apps[i].Name]
		status.Message = ""
		s.Apps[i].Status = &status
	}
	if s.Exit != nil {
		e := *s.Exit
		e.Message = ""
		s.Exit = &e
	}
	return s
}

// makeRunDir makes the pod's run folder, which ordinary users may pass.
func makeRunDir(runDir string) error {
	if err := fault.Step("rundir.create"); err != nil {
		return err
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	// Launchers keep environments in it.
	return os.MkdirAll(filepath.Join(runDir, poddir.LaunchDir), 0o700)
}

// cleanRunDir removes all but the summary, which goes with the pod.
func cleanRunDir(runDir string) error {
	if err := fault.Step("rundir.clean"); err != nil {
		return err
	}
	if !exists(runDir) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(runDir, &st); err != nil {
		return fmt.Errorf("%s: %w", runDir, err)
	}
	entries, err := os.ReadDir(runDir)
	for _, e := range entries {
		if e.Name() != poddir.SummaryFile {
			err = errors.Join(err, removeTree(filepath.Join(runDir, e.Name()), st.Dev))
		}
	}
	return err
}

// removeTree removes what is on the given device and refuses the rest: should
// a mount ever be left, what is mounted must not be emptied.
func removeTree(path string, dev uint64) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if st.Dev != dev {
		return errs.Newf(errs.Busy, "%s: still mounted", path)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		entries, err := os.ReadDir(path)
		for _, e := range entries {
			err = errors.Join(err, removeTree(filepath.Join(path, e.Name()), dev))
		}
		if err != nil {
			return err
		}
	}
	return os.Remove(path)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
