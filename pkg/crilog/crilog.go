// Package crilog writes and reads apps' logs in the line format of the
// Kubernetes CRI:
//
//	2026-01-02T15:04:05.000000000Z stdout F a whole line
//	2026-01-02T15:04:05.000000000Z stderr P the begin of one, or its middle
//
// F stands for a line whose newline was seen, P for bytes without one. So the
// bytes of each stream can be given back exactly, also where the last line
// had no end. The newest entries are in <path>; <path>.1 is older, and the
// highest number is the oldest.
package crilog

import (
	"bytes"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// Stream is where an entry came from.
type Stream string

// The streams of an app.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// maxContent bounds the content of one entry, so that readers can have a
// bound too.
const maxContent = 64 << 10

// timeFormat is RFC 3339 with all nine digits, so that entries sort as text.
const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// Entry is one line of a log.
type Entry struct {
	Time    time.Time
	Stream  Stream
	Partial bool   // no newline follows Content
	Content []byte // without its newline
}

// Bytes appends what the app wrote to buf.
func (e Entry) Bytes(buf []byte) []byte {
	buf = append(buf, e.Content...)
	if !e.Partial {
		buf = append(buf, '\n')
	}
	return buf
}

// appendEntry appends the entry's line. Content must have no newline.
func appendEntry(buf []byte, stamp string, s Stream, partial bool, content []byte) []byte {
	buf = append(buf, stamp...)
	buf = append(buf, ' ')
	buf = append(buf, s...)
	if partial {
		buf = append(buf, " P "...)
	} else {
		buf = append(buf, " F "...)
	}
	buf = append(buf, content...)
	return append(buf, '\n')
}

// parse is the inverse of appendEntry, without the newline. The content is
// part of line.
func parse(line []byte) (Entry, error) {
	stamp, rest, ok1 := bytes.Cut(line, []byte{' '})
	stream, rest, ok2 := bytes.Cut(rest, []byte{' '})
	tags, content, ok3 := bytes.Cut(rest, []byte{' '})
	if !ok1 || !ok2 || !ok3 {
		return Entry{}, errs.Newf(errs.Corrupt, "log entry: not of the form TIME STREAM TAG CONTENT")
	}
	t, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Entry{}, errs.Newf(errs.Corrupt, "log entry: time %.40q: not RFC 3339", stamp)
	}
	e := Entry{Time: t, Stream: Stream(stream), Content: content}
	if e.Stream != Stdout && e.Stream != Stderr {
		return Entry{}, errs.Newf(errs.Corrupt, "log entry: stream %.20q: unknown", stream)
	}
	// The format lets further tags follow, divided by colons.
	switch tag, _, _ := bytes.Cut(tags, []byte{':'}); string(tag) {
	case "F":
	case "P":
		e.Partial = true
	default:
		return Entry{}, errs.Newf(errs.Corrupt, "log entry: tag %.20q: unknown", tags)
	}
	return e, nil
}
