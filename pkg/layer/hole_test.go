package layer

import "testing"

func TestNotZero(t *testing.T) {
	for _, size := range []int{0, 1, 4095, 4096, 4097, 3 * 4096} {
		b := make([]byte, size)
		if got := NotZero(b); got != -1 {
			t.Errorf("%d zeroes: %d", size, got)
		}
		for _, at := range []int{0, size / 2, size - 1} {
			if at < 0 || size == 0 {
				continue
			}
			b[at] = 1
			if got := NotZero(b); got != at {
				t.Errorf("%d of %d: %d", at, size, got)
			}
			b[at] = 0
		}
	}
}
