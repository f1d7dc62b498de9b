package main

import (
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// arrange finds the command among the words. Flags may stand before it, also
// the command's own, and its name may be cut short; flags are moved behind it.
// Empty words before it are dropped, as scripts of rkt rely on.
func arrange(root *cobra.Command, args []string) (path, rest []string, err error) {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil, args, nil
	}
	// To visit each flag of each command costs a few hundredths of what a
	// short command does, and is needed only for a flag before the command with its
	// value in the next word.
	takesValue := sync.OnceValue(func() map[string]bool { return valueFlags(root) })
	cmd := root
	var before []string
	for cmd.HasSubCommands() {
		i := 0
		for i < len(args) && (args[i] == "" || args[i][0] == '-' && args[i] != "-" && args[i] != "--") {
			n := 1
			if i+1 < len(args) && !strings.Contains(args[i], "=") && takesValue()[args[i]] {
				n = 2
			}
			if args[i] != "" {
				before = append(before, args[i:i+n]...)
			}
			i += n
		}
		args = args[i:]
		if len(args) == 0 || args[0] == "--" {
			break
		}
		next, err := subcommand(cmd, args[0])
		if err != nil {
			return nil, append(before, args...), err
		}
		cmd, args = next, args[1:]
		path = append(path, cmd.Name())
	}
	return path, append(before, args...), nil
}

// subcommand finds a command by its name, an alias, or a prefix that fits no
// other one.
func subcommand(parent *cobra.Command, word string) (*cobra.Command, error) {
	var fits []*cobra.Command
	for _, c := range parent.Commands() {
		if c.Name() == word || c.HasAlias(word) {
			return c, nil
		}
		if strings.HasPrefix(c.Name(), word) && !c.Hidden {
			fits = append(fits, c)
		}
	}
	switch len(fits) {
	case 1:
		return fits[0], nil
	case 0:
		err := errs.Newf(errs.Usage, "unknown command %q for %q", word, parent.CommandPath())
		if near := parent.SuggestionsFor(word); len(near) > 0 {
			return nil, errs.WithHint(err, "did you mean %q?", near[0])
		}
		return nil, errs.WithHint(err, "\"rkt help\" lists the commands")
	}
	var names []string
	for _, c := range fits {
		names = append(names, c.Name())
	}
	return nil, errs.Newf(errs.Usage, "ambiguous command %q: %s", word, strings.Join(names, ", "))
}

// valueFlags are the flags, of any command, that take the next word as their
// value when none is attached.
func valueFlags(root *cobra.Command) map[string]bool {
	takes := map[string]bool{}
	add := func(fs *pflag.FlagSet) {
		fs.VisitAll(func(f *pflag.Flag) {
			if f.NoOptDefVal == "" {
				takes["--"+f.Name] = true
			}
		})
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		add(c.PersistentFlags())
		add(c.Flags())
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	return takes
}
