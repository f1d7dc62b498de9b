// Package unshare, once linked into a program, gives it a mount namespace of
// its own, cut off from the host's, before the Go runtime starts, if the
// program's first argument is "run". Only a supervisor's program links it.
package unshare
