package main

import (
	"strings"
	"testing"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// TestArrange: "path | rest" for each line, or the error.
func TestArrange(t *testing.T) {
	cases := map[string]string{
		"":                           " | ",
		"list":                       "list | ",
		"lis --full":                 "list | --full",
		"ver":                        "version | ",
		"rm":                         "rm | ",
		"--debug list":               "list | --debug",
		"--dir /x list":              "list | --dir /x",
		"--dir=/x list":              "list | --dir=/x",
		"--net=host --debug run img": "run | --net=host --debug img",
		"--set-env A=b run img":      "run | --set-env A=b img",
		"--interactive run img":      "run | --interactive img",
		"--pull-policy=new fetch X":  "fetch | --pull-policy=new X",
		"image --full list":          "image list | --full",
		"im li --full":               "image list | --full",
		"image":                      "image | ",
		"run img -- --debug list":    "run | img -- --debug list",
		"help run":                   "help | run",
		"__complete st":              " | __complete st",
		"bogus":                      "error: unknown command \"bogus\" for \"rkt\"",
		"image bogus":                "error: unknown command \"bogus\" for \"rkt image\"",
		"run-prepared x":             "run-prepared | x",
		"ru img":                     "error: ambiguous command \"ru\": run, run-prepared",
		"rm-a":                       "error: unknown command \"rm-a\" for \"rkt\"",
		"-- list":                    " | -- list",
	}
	for line, want := range cases {
		root := newRoot(&globals{})
		path, rest, err := arrange(root, strings.Fields(line))
		got := strings.Join(path, " ") + " | " + strings.Join(rest, " ")
		if err != nil {
			got = "error: " + err.Error()
			if !errs.Is(err, errs.Usage) {
				t.Errorf("%q: class %s", line, errs.ClassOf(err))
			}
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	// Empty words are dropped before the command, and are the command's own
	// behind it.
	path, rest, err := arrange(newRoot(&globals{}), []string{"", "--debug", "", "status", ""})
	if err != nil || len(path) != 1 || strings.Join(rest, "|") != "--debug|" {
		t.Errorf("empty words: %q %q %v", path, rest, err)
	}
}
