// Report reads what `go test -json` prints, on its standard input, shows what failed and how much ran,
// and fails if a test was skipped that is not on the list of expected skips.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

func main() {
	expected := flag.String("expected", "", "file with one `package test` a line; # starts a comment")
	flag.Parse()
	ok, err := report(os.Stdin, *expected)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

func report(r io.Reader, expected string) (bool, error) {
	skips, err := readList(expected)
	if err != nil {
		return false, err
	}
	output := map[string][]string{}
	count := map[string]int{}
	ok := true
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, 16<<20)
	for scan.Scan() {
		var e event
		if json.Unmarshal(scan.Bytes(), &e) != nil {
			fmt.Println(scan.Text()) // what the go command says itself
			continue
		}
		key := e.Package + " " + e.Test
		if e.Action == "output" || e.Action == "build-output" {
			output[key] = append(output[key], e.Output)
			continue
		}
		if e.Action != "pass" && e.Action != "fail" && e.Action != "skip" && e.Action != "build-fail" {
			continue
		}
		if e.Test != "" {
			count[e.Action]++
		} else if e.Action == "pass" {
			fmt.Printf("ok   %s %.1fs\n", e.Package, e.Elapsed)
		}
		switch {
		case e.Action == "fail" || e.Action == "build-fail":
			ok = false
			fmt.Print(strings.Join(output[key], ""))
		case e.Action == "skip" && e.Test != "" && !slices.Contains(skips, key):
			ok = false
			fmt.Printf("unexpected skip: %s\n%s", key, strings.Join(output[key], ""))
		case e.Action == "skip" && e.Test != "":
			fmt.Printf("skip %s\n%s", key, strings.Join(output[key], ""))
		}
		delete(output, key)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", count["pass"], count["fail"], count["skip"])
	return ok && count["pass"] > 0, scan.Err()
}

func readList(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list, nil
}
