package layer

import "bytes"

// Hole is how many zeroes in a file become a hole, from a multiple of this on:
// few enough that a file of zeroes takes no space, and so many that a file of
// data is written in one go.
const Hole = 64 << 10

var zeroes [4096]byte

// NotZero returns the index of the first byte that is not 0, or -1. It has to go
// through all of a sparse file, so that it compares whole pages.
func NotZero(b []byte) int {
	at := 0
	for len(b)-at >= len(zeroes) && bytes.Equal(b[at:at+len(zeroes)], zeroes[:]) {
		at += len(zeroes)
	}
	for i, c := range b[at:] {
		if c != 0 {
			return at + i
		}
	}
	return -1
}
