// Package unshare gives the program that links it a mount namespace of its
// own, cut off from the host's, before the Go runtime starts, if its first
// argument is "run". Only a supervisor's program links it.
package unshare
