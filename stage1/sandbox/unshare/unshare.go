//go:build cgo

package unshare

// The constructor is in unshare.c; importing C has it compiled and linked.

import "C"
