package store

import "github.com/rkt-pods/rkt/pkg/poddir"

// checkPlace refuses a copy of a data folder as long as the original has pods.
// It takes one look at an attribute, and nothing where no pod has a run folder.
func (s *Store) checkPlace() error { return poddir.Claim(s.id, s.data) }
