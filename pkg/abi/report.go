package abi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// hintMark is what a hint's line begins with after the command's name.
const hintMark = "hint: "

// Report is the text by which a stage1 tells of an error on its stderr, in the
// name of the command: a line, and one for each hint.
func Report(command string, err error) string {
	text := fmt.Sprintf("%s: %v\n", command, err)
	for _, hint := range errs.Hints(err) {
		text += command + ": " + hintMark + hint + "\n"
	}
	return text
}

// ParseReport is the inverse of Report, but for the error's class: for who
// must tell of the error in a wider context, once. It returns nil if the text
// is none.
func ParseReport(command, text string) error {
	var message, hints []string
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), command+": ")
		if hint, isHint := strings.CutPrefix(line, hintMark); isHint && ok {
			hints = append(hints, hint)
		} else {
			message = append(message, line)
		}
	}
	if len(message) == 0 {
		return nil
	}
	err := errors.New(strings.Join(message, "\n"))
	for i := range hints {
		err = errs.WithHint(err, "%s", hints[len(hints)-1-i])
	}
	return err
}
