package network

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
)

// Orphans are things that belong to owners which no longer exist.
type Orphans struct {
	Elements []Owned   `json:"rules"`
	Leases   []Holding `json:"leases"`
	Names    []Name    `json:"names"`
}

// None says whether there is nothing.
func (o Orphans) None() bool { return len(o.Elements)+len(o.Leases)+len(o.Names) == 0 }

// FindOrphans looks for what belongs to owners that are gone. dirs are the
// folders of leases to look at beside rkt's own.
func FindOrphans(ctx context.Context, dirs []string, gone func(owner string) bool) (Orphans, error) {
	o := Orphans{Elements: []Owned{}, Leases: []Holding{}, Names: []Name{}}
	t, err := ReadTable(ctx)
	if err != nil && !errs.Is(err, errs.Unsupported) {
		return o, err
	}
	for _, e := range t.Elements {
		if gone(e.Owner) {
			o.Elements = append(o.Elements, e)
		}
	}
	for _, dir := range append(ownLeaseDirs(), dirs...) {
		list, err := Leases(dir)
		if err != nil {
			return o, err
		}
		for _, h := range list {
			if gone(h.Owner) {
				o.Leases = append(o.Leases, h)
			}
		}
	}
	networks, err := namedNetworks()
	if err != nil {
		return o, err
	}
	for _, n := range networks {
		names, err := Names(n)
		if err != nil {
			return o, err
		}
		o.Names = append(o.Names, slices.DeleteFunc(names, func(n Name) bool { return !gone(n.Owner) })...)
	}
	return o, nil
}

// Sweep removes what FindOrphans finds, each part also when another can't be.
func Sweep(ctx context.Context, dirs []string, gone func(owner string) bool) (Orphans, error) {
	found, err := FindOrphans(ctx, dirs, gone)
	if err != nil {
		return found, err
	}
	if len(found.Elements) > 0 {
		err = dropElements(ctx, gone)
	}
	own := ownLeaseDirs()
	for _, dir := range append(own, dirs...) {
		err = errors.Join(err, free(dir, gone))
	}
	for _, dir := range own {
		tidy(dir)
	}
	networks, nerr := namedNetworks()
	err = errors.Join(err, nerr)
	for _, n := range networks {
		err = errors.Join(err, changeNames(ctx, n, nil, gone))
	}
	return found, errors.Join(err, dropEmpty(ctx))
}

func ownLeaseDirs() []string {
	dirs, _ := filepath.Glob(filepath.Join(poddir.NetDir(), "leases", "*")) // the pattern is good
	return dirs
}

func namedNetworks() ([]string, error) {
	entries, err := os.ReadDir(NamesDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			list = append(list, e.Name())
		}
	}
	return list, nil
}

// Missing are the elements of a pod that the table lacks, and whether it lacks
// rules.
func Missing(ctx context.Context, recs []poddir.NetRecord) (list []Owned, whole bool, err error) {
	t, err := ReadTable(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, rec := range recs {
		for _, e := range Elements(rec) {
			there := func(o Owned) bool { return o.Owner == rec.ContainerID && same(o.Element, e) }
			if !slices.ContainsFunc(t.Elements, there) {
				list = append(list, Owned{e, rec.ContainerID})
			}
		}
	}
	return list, t.Whole, nil
}

// HostLocalRoot lists the folders in which host-local keeps leases where its
// configuration says nothing.
func HostLocalRoot() []string {
	dirs, _ := filepath.Glob(filepath.Join(hostLocalDir, "*"))
	return dirs
}
