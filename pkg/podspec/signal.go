package podspec

import (
	"strconv"
	"strings"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// How an app is stopped that says nothing of it.
const (
	DefaultStopSignal  = 15 // SIGTERM
	DefaultStopTimeout = 10 * time.Second
)

// The real-time signals as C libraries number them: the kernel's first two
// are glibc's own.
const (
	sigRTMin = 34
	sigRTMax = 64
)

// signals are Linux's numbers on every architecture that rkt builds for.
var signals = map[string]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "IOT": 6, "BUS": 7,
	"FPE": 8, "KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14,
	"TERM": 15, "STKFLT": 16, "CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20,
	"TTIN": 21, "TTOU": 22, "URG": 23, "XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27,
	"WINCH": 28, "IO": 29, "POLL": 29, "PWR": 30, "SYS": 31, "RTMIN": sigRTMin, "RTMAX": sigRTMax,
}

// ParseSignal understands SIGTERM, TERM, sigterm, 15, SIGRTMIN+3 and RTMAX-2.
func ParseSignal(s string) (int, error) {
	bad := errs.WithHint(errs.Newf(errs.Usage, "signal %q: unknown", s), "a signal is a name such as SIGTERM or SIGRTMIN+3, or a number from 1 to 64")
	if n, err := strconv.ParseUint(s, 10, 8); err == nil {
		if n < 1 || n > sigRTMax {
			return 0, bad
		}
		return int(n), nil
	}
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	base, offset := name, 0
	if i := strings.IndexAny(name, "+-"); i > 0 {
		n, err := strconv.ParseUint(name[i+1:], 10, 8)
		up := name[:i] == "RTMIN" && name[i] == '+'
		down := name[:i] == "RTMAX" && name[i] == '-'
		if err != nil || !up && !down {
			return 0, bad
		}
		base, offset = name[:i], int(n)
		if down {
			offset = -offset
		}
	}
	n, ok := signals[base]
	if !ok || offset != 0 && (n+offset < sigRTMin || n+offset > sigRTMax) {
		return 0, bad
	}
	return n + offset, nil
}
