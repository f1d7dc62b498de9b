package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/cni"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fault"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// nftDeadline bounds a call of nft, which only waits for other calls of it.
const nftDeadline = 30 * time.Second

// nft runs nft(8), with the text as its commands unless there are arguments.
func nft(ctx context.Context, text string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, nftDeadline)
	defer cancel()
	if text != "" {
		args = []string{"-f", "-"}
	}
	path, err := cni.Program("nft")
	if err != nil {
		return nil, errs.WithHint(errs.Newf(errs.Unsupported, "nft: not installed"),
			"the package nftables has it; --net=host and --net=none do without")
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return nil, fmt.Errorf("nft: %w: %s", err, first)
	}
	return stdout.Bytes(), nil
}

// Table is what the kernel has of rkt's rules.
type Table struct {
	Elements []Owned
	There    bool
	Whole    bool // all rules are there
}

// ReadTable reads the table. One that isn't there is empty.
func ReadTable(ctx context.Context) (Table, error) {
	out, err := nft(ctx, "", "-j", "list", "table", "inet", "rkt")
	if err != nil {
		if errs.Is(err, errs.Unsupported) {
			return Table{}, err
		}
		return Table{}, absent(err)
	}
	list, rules, err := parseTable(out)
	return Table{Elements: list, There: true, Whole: rules >= strings.Count(base, "add rule ")}, err
}

// absent drops the error for a table that isn't there.
func absent(err error) error {
	if strings.Contains(err.Error(), "No such file or directory") {
		return nil
	}
	return err
}

// Publish puts a pod's elements into the table, which it makes if need be. The
// caller holds the sockets of the pod's ports: whoever else's element has such
// a key is dead, and is replaced.
func Publish(ctx context.Context, rec poddir.NetRecord) error {
	list := Elements(rec)
	if len(list) == 0 {
		return nil
	}
	if err := fault.Step("network.publish"); err != nil {
		return err
	}
	l, err := shared(ctx)
	if err != nil {
		return err
	}
	_, err = nft(ctx, addText(list, rec.ContainerID))
	if lerr := l.Close(); err == nil || errs.Is(err, errs.Unsupported) {
		return errors.Join(err, lerr)
	}
	// No table, or keys of dead pods are in the way.
	return Restore(ctx, []poddir.NetRecord{rec}, nil)
}

// Restore makes the table whole and the pods' elements right in it. What
// belongs to owners that gone names is removed.
func Restore(ctx context.Context, recs []poddir.NetRecord, gone func(owner string) bool) error {
	l, err := exclusive(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	t, err := ReadTable(ctx)
	if err != nil {
		return err
	}
	var text strings.Builder
	if !t.Whole {
		text.WriteString(base)
	}
	var wanted []Owned
	for _, rec := range recs {
		for _, e := range Elements(rec) {
			wanted = append(wanted, Owned{e, rec.ContainerID})
		}
	}
	for _, there := range t.Elements {
		i := slices.IndexFunc(wanted, func(w Owned) bool { return w.Owner == there.Owner && same(w.Element, there.Element) })
		if i >= 0 {
			wanted = slices.Delete(wanted, i, i+1)
			continue
		}
		inTheWay := slices.ContainsFunc(wanted, func(w Owned) bool { return sameKey(w.Element, there.Element) })
		mine := slices.ContainsFunc(recs, func(r poddir.NetRecord) bool { return r.ContainerID == there.Owner })
		if inTheWay || mine || gone != nil && gone(there.Owner) {
			text.WriteString(deleteText([]Element{there.Element}))
		}
	}
	for _, w := range wanted {
		text.WriteString(addText([]Element{w.Element}, w.Owner))
	}
	if text.Len() == 0 {
		return nil
	}
	if err := fault.Step("network.restore"); err != nil {
		return err
	}
	_, err = nft(ctx, text.String())
	return err
}

// Unpublish takes a pod's elements out of the table, whatever is there of them.
func Unpublish(ctx context.Context, rec poddir.NetRecord) error {
	list := Elements(rec)
	if len(list) == 0 {
		return nil
	}
	if err := fault.Step("network.unpublish"); err != nil {
		return err
	}
	if _, err := nft(ctx, deleteText(list)); err == nil {
		return nil
	}
	return dropElements(ctx, func(owner string) bool { return owner == rec.ContainerID })
}

// dropEmpty removes the table when no pod of any store has anything in it, and
// the lock with its folder when nothing else is there.
func dropEmpty(ctx context.Context) error {
	l, err := exclusive(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	t, err := ReadTable(ctx)
	if err != nil && !errs.Is(err, errs.Unsupported) {
		return err
	}
	if len(t.Elements) > 0 {
		return nil
	}
	if t.There {
		if err := fault.Step("network.droptable"); err != nil {
			return err
		}
		if _, err := nft(ctx, "delete table inet rkt\n"); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(poddir.NetDir())
	if err != nil || len(entries) > 1 {
		return err
	}
	// Whoever waits for the lock finds that it is another file by now.
	return errors.Join(os.Remove(lockFile), removeEmpty(poddir.NetDir()))
}

// removeEmpty removes a folder unless somebody has put something into it.
func removeEmpty(dir string) error {
	err := os.Remove(dir)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeOwned removes the elements of all owners that are meant.
func removeOwned(ctx context.Context, meant func(owner string) bool) error {
	t, err := ReadTable(ctx)
	if errs.Is(err, errs.Unsupported) {
		return nil // without nft nothing was ever put in
	}
	if err != nil {
		return err
	}
	var list []Element
	for _, e := range t.Elements {
		if meant(e.Owner) {
			list = append(list, e.Element)
		}
	}
	if len(list) == 0 {
		return nil
	}
	_, err = nft(ctx, deleteText(list))
	return err
}
