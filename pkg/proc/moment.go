package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// Moment is a point in time by the clock that runs from the boot on, suspended
// or not, and that nobody can set. The zero value is no moment.
type Moment struct {
	BootID string `json:"bootID"`
	Ns     int64  `json:"ns"`
}

// Now is this moment.
func Now() Moment { return Moment{BootID(), sinceBoot()} }

// Age returns how long ago it was; false if it was in another boot, or by a
// clock of another time namespace that is ahead.
func (m Moment) Age() (time.Duration, bool) {
	age := sinceBoot() - m.Ns
	return time.Duration(age), m.BootID != "" && m.BootID == BootID() && age >= 0
}

func sinceBoot() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // can't fail for a clock that there is
	return ts.Nano()
}
