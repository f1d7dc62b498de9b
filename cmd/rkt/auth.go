package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/stage0/auth"
	"github.com/rkt-pods/rkt/stage0/config"
)

func newAuth(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "auth COMMAND",
		Short: "Show which credentials are used",
		Args:  cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return errs.WithHint(errs.Newf(errs.Usage, "missing command"), "\"rkt help auth\" lists them")
		},
	}
	cmd.AddCommand(newAuthExplain(g))
	return cmd
}

func newAuthExplain(g *globals) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "explain IMAGE",
		Short: "Show where credentials for an image are looked for, and which are used",
		Long: `Lists all sources of credentials in the order in which they are asked, what each
has, and which one is used: the first that has an entry. Secrets are never shown.

A credential helper is really asked, unless a source before it has an entry.`,
		Example: `  rkt auth explain docker://registry.example.com/team/app`,
		RunE:    func(cmd *cobra.Command, args []string) error { return runAuthExplain(cmd.Context(), g, args, format) },
	}
	cmd.Flags().StringVar(&format, "format", "", "json or json-pretty")
	return cmd
}

// explained is what auth explain --format=json prints.
type explained struct {
	Host       string      `json:"host"`
	Repository string      `json:"repository,omitempty"`
	Used       bool        `json:"used"`
	Sources    []auth.Step `json:"sources"`
}

func runAuthExplain(ctx context.Context, g *globals, args []string, format string) error {
	if err := checkFormat(format); err != nil {
		return err
	}
	if len(args) != 1 {
		return errs.Newf(errs.Usage, "must provide one image")
	}
	r, err := ref.Parse(args[0], func(string) bool { return false })
	if err != nil {
		return err
	}
	request, err := authRequest(r)
	if err != nil {
		return err
	}
	c, err := config.Load(g.dirs, false)
	if err != nil {
		return err
	}
	out := explained{Host: request.Host, Repository: request.Repository}
	out.Sources, err = auth.New(c).Explain(ctx, request)
	for _, s := range out.Sources {
		out.Used = out.Used || s.State == auth.Used
	}
	if format != "" {
		if perr := printJSON(g.stdout, format, out); perr != nil {
			return perr
		}
		return err
	}
	w := tabwriter.NewWriter(g.stdout, 2, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SOURCE\tPLACE\tRESULT")
	for _, s := range out.Sources {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Source, plain(s.Place), plain(resultOf(s)))
	}
	if ferr := w.Flush(); ferr != nil {
		return ferr
	}
	return err
}

// authRequest is what the credentials of a reference are asked for.
func authRequest(r ref.Ref) (auth.Request, error) {
	switch r.Kind {
	case ref.OCI:
		return auth.Request{Host: r.Host, Repository: r.Repository}, nil
	case ref.URL:
		u, err := url.Parse(r.URL)
		if err != nil {
			return auth.Request{}, errs.WithClass(errs.Usage, err)
		}
		return auth.Request{Host: u.Host}, nil
	case ref.Name: // discovery asks there
		host, _, _ := strings.Cut(r.Name, "/")
		return auth.Request{Host: host}, nil
	case ref.ID, ref.File:
	}
	return auth.Request{}, errs.Newf(errs.Usage, "%s: needs no credentials: it does not come from the network", r.Text)
}

func resultOf(s auth.Step) string {
	text := s.State
	switch {
	case s.State == auth.Used:
		text += ": " + s.Kind
		if s.User != "" {
			text += fmt.Sprintf(" of %q", s.User)
		}
		if s.Key != "" {
			text += fmt.Sprintf(", entry %q", s.Key)
		}
	case s.Error != "":
		text += ": " + s.Error
	}
	if s.Helper != "" && s.Error == "" {
		text += ", by " + s.Helper
	}
	return text
}
