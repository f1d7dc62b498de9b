package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/stage0/pod"
)

// completer is cobra's type of function that offers words for what is typed.
// What goes wrong in one is no answer: nobody wants errors between words.
type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// named are the states of pods that can be named.
var named = []pod.State{pod.Preparing, pod.AbortedPrepare, pod.Prepared, pod.Running, pod.Exiting, pod.Exited, pod.ExitedDeleting, pod.ExitedGarbage}

// started are the states of pods that have run.
var started = []pod.State{pod.Running, pod.Exiting, pod.Exited, pod.ExitedGarbage}

// completePods offers the UUIDs of the pods in these states that are not among
// the words yet. then says what follows the first UUID: more of them, or words
// of another kind.
func (g *globals) completePods(states []pod.State, many bool, then cobra.ShellCompDirective) completer {
	return func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !many {
			return nil, then
		}
		views, _, err := g.views()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var offers []string
		for _, v := range views {
			if slices.Contains(states, v.state) && !slices.Contains(args, v.uuid) && strings.HasPrefix(v.uuid, strings.ToLower(word)) {
				offers = append(offers, v.uuid+"\t"+string(v.state)+" "+strings.Join(v.appNames(), ", "))
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeApps offers the apps of the pod that is named, or of all pods in
// these states as long as none is.
func (g *globals) completeApps(states []pod.State) completer {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		views, _, err := g.views()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var offers []string
		for _, v := range views {
			mine := len(args) == 0 && slices.Contains(states, v.state) || len(args) > 0 && strings.HasPrefix(v.uuid, args[0])
			if mine {
				offers = append(offers, v.appNames()...)
			}
		}
		slices.Sort(offers)
		return slices.Compact(offers), cobra.ShellCompDirectiveNoFileComp
	}
}

func (v view) appNames() []string {
	var names []string
	for _, a := range v.apps {
		names = append(names, a.name)
	}
	return names
}

// completeWords is for commands that parse their own words. Their flags are
// offered by cobra; all else are images and values, of which the shell finds
// the files.
func completeWords(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	if strings.HasPrefix(word, "-") && !strings.Contains(word, "=") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// completesArgs says whether the word that is to be completed is one for an
// app, behind "--", about which nothing is known. Cobra would offer flags.
func completesArgs(words []string) bool {
	if len(words) < 2 || !strings.HasPrefix(words[0], cobra.ShellCompRequestCmd) {
		return false
	}
	behind := false
	for _, w := range words[1 : len(words)-1] {
		behind = w == "--" || behind && w != "---"
	}
	return behind
}

// printDirective ends a list of offers as the shells' scripts read it.
func printDirective(w io.Writer, d cobra.ShellCompDirective) error {
	_, err := fmt.Fprintf(w, ":%d\n", d)
	return err
}

// complete sets what is offered for the words of each command.
func (g *globals) complete(root *cobra.Command) {
	none := cobra.ShellCompDirectiveNoFileComp
	removable := []pod.State{pod.AbortedPrepare, pod.Prepared, pod.Exited, pod.ExitedGarbage}
	for name, words := range map[string]completer{
		"status":       g.completePods(named, false, none),
		"cat-manifest": g.completePods(slices.Concat([]pod.State{pod.Prepared}, started), true, none),
		"run-prepared": g.completePods([]pod.State{pod.Prepared}, false, none),
		"logs":         g.completePods(started, false, none),
		"enter":        g.completePods([]pod.State{pod.Running}, false, cobra.ShellCompDirectiveDefault),
		"stop":         g.completePods([]pod.State{pod.Running, pod.Exiting}, true, none),
		"kill":         g.completePods([]pod.State{pod.Running}, true, none),
		"pause":        g.completePods([]pod.State{pod.Running}, true, none),
		"unpause":      g.completePods([]pod.State{pod.Running}, true, none),
		"update":       g.completePods([]pod.State{pod.Running}, false, none),
		"wait":         g.completePods(named, true, none),
		"events":       g.completePods(named, true, none),
		"rm":           g.completePods(removable, true, none),
		"list":         cobra.NoFileCompletions,
		"gc":           cobra.NoFileCompletions,
		"run":          completeWords,
		"prepare":      completeWords,
		"fetch":        completeWords,
	} {
		cmd, err := subcommand(root, name)
		if err != nil {
			continue // the name is none of this program's
		}
		cmd.ValidArgsFunction = words
		if cmd.Flags().Lookup("format") != nil {
			_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"json", "json-pretty"}, none)) // the flag is there
		}
		if cmd.Flags().Lookup("app") != nil {
			_ = cmd.RegisterFlagCompletionFunc("app", g.completeApps(started)) // the flag is there
		}
	}
}

// completionHelp says what a script alone does not do.
const completionHelp = `Prints a script that makes the shell complete commands, flags, the UUIDs of pods
and the names of their apps. "make install" puts the scripts in place.

bash needs the package bash-completion, which Debian installs by that name: its
functions must be loaded before the script is, as a login shell does.`

// completionExample shows how the script is loaded.
const completionExample = `  . /usr/share/bash-completion/bash_completion && . <(rkt completion bash)
  rkt completion zsh > "${fpath[1]}/_rkt"
  rkt completion fish > ~/.config/fish/completions/rkt.fish`
