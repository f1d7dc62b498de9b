// Bench measures rkt beside the runtimes that the host has: the same root file
// system, in turn, wall clock and CPU time of the whole process tree. It prints
// a table a case; with -write it also writes Documentation/performance.md and
// the chart beside it. Nothing is asserted on speed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
)

type options struct {
	bin, busybox, dir, docs string
	only                    *regexp.Regexp
	rounds                  int
	write                   bool
	generate                string
}

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = measure(ctx, o, os.Stdout)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := options{only: regexp.MustCompile("")}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&o.bin, "bin", "bin", "folder of rkt, stage1 and podinit")
	fs.StringVar(&o.busybox, "busybox", "/bin/busybox", "a static busybox")
	fs.StringVar(&o.dir, "dir", "/var/tmp", "where to make the temporary folder; on a disk, or what is synced costs nothing")
	fs.StringVar(&o.docs, "docs", "Documentation", "folder for -write")
	fs.IntVar(&o.rounds, "rounds", 10, "measured rounds of each case")
	fs.BoolVar(&o.write, "write", false, "write performance.md and performance.svg")
	fs.StringVar(&o.generate, "generate", "", "only write images, small, large or layouts, to the folder -dir")
	fs.Func("only", "regular expression of the cases to take (default all)", func(s string) (err error) {
		o.only, err = regexp.Compile(s)
		return err
	})
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument: %s", fs.Arg(0))
	}
	if o.rounds < 1 {
		return o, fmt.Errorf("rounds: %d: at least 1", o.rounds)
	}
	return o, nil
}

func measure(ctx context.Context, o options, out io.Writer) (err error) {
	if o.generate != "" {
		return generate(o)
	}
	if os.Geteuid() != 0 {
		return errors.New("run it as root: it runs pods")
	}
	b, err := newBench(ctx, o, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.setUp(ctx); err != nil {
		return err
	}
	report, err := b.all(ctx, o.only)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	report.summary(out)
	if o.write {
		return report.write(o.docs)
	}
	return nil
}

// all takes the cases that were asked for and prints each as it is done.
func (b *bench) all(ctx context.Context, only *regexp.Regexp) (report, error) {
	r := report{host: b.host(), peers: b.peers, rounds: b.rounds}
	r.header(b.out)
	for _, c := range b.cases() {
		if !only.MatchString(c.name) {
			continue
		}
		res, err := b.run(ctx, c)
		if err != nil {
			return r, err
		}
		res.table(b.out)
		r.results = append(r.results, res)
	}
	if len(r.results) == 0 {
		return r, fmt.Errorf("choose cases: %s: none has such a name", only)
	}
	return r, nil
}
