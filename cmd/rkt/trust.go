package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/pkg/userfile"
	"github.com/rkt-pods/rkt/stage0/config"
	"github.com/rkt-pods/rkt/stage0/fetch"
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/trust"
	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
)

type trustOptions struct {
	prefix      string
	prefixGiven bool
	root        bool
	skipReview  bool
	allowHTTP   bool
	list        bool
	remove      string
	format      string
}

func newTrust(g *globals) *cobra.Command {
	var o trustOptions
	cmd := &cobra.Command{
		Use:   "trust [FLAGS] [PUBKEY…]",
		Short: "Trust keys that images are signed with",
		Long: `Takes public keys, as files or URLs, and trusts them for the images whose names
begin with --prefix, element by element. A key is an OpenPGP one, armored or not, for
ACIs, or a PEM file with a public key, for signatures made with "cosign sign --key".
Without PUBKEY the keys are those that the pages of the prefix name
(ac-discovery-pubkeys). Before a key is trusted its fingerprint is shown, to be
compared with one that is known from elsewhere.

Keys are kept below /etc/rkt/trustedkeys, in root.d and in prefix.d/PREFIX. An empty
file there takes away the key of the same name below /usr/lib/rkt/trustedkeys.`,
		Example: `  rkt trust --prefix=example.com/etcd
  rkt trust --prefix=registry.example.com/team cosign.pub
  rkt trust --root https://example.com/pubkeys.gpg
  rkt trust --list`,
		RunE: func(cmd *cobra.Command, args []string) error { return runTrust(cmd, g, args, o) },
	}
	fs := cmd.Flags()
	value(fs, "prefix", "NAME", "trust the keys for images whose names begin so", func(v string) error {
		o.prefix, o.prefixGiven = v, true
		return config.CheckPrefix(v)
	})
	fs.BoolVar(&o.root, "root", false, "trust the keys for all images")
	fs.BoolVar(&o.skipReview, "skip-fingerprint-review", false, "don't ask whether the fingerprint is right")
	fs.BoolVar(&o.allowHTTP, "insecure-allow-http", false, "take keys, and what names them, over plain http too")
	fs.BoolVar(&o.list, "list", false, "list the trusted keys")
	fs.StringVar(&o.remove, "remove", "", "stop trusting the key with this `FINGERPRINT`, with --prefix or --root only there")
	fs.StringVar(&o.format, "format", "", "of --list: json or json-pretty")
	return cmd
}

func runTrust(cmd *cobra.Command, g *globals, args []string, o trustOptions) error {
	if err := checkFormat(o.format); err != nil {
		return err
	}
	if err := o.check(args); err != nil {
		return err
	}
	// Rules and options have no say in which keys there are.
	p, err := trust.Load(trust.Options{System: g.dirs.System, Local: g.dirs.Local})
	if err != nil {
		return err
	}
	switch {
	case o.list:
		return g.listKeys(p, o.format)
	case o.remove != "":
		return g.removeKey(p, o)
	}
	t := &truster{g: g, cmd: cmd, policy: p, trustOptions: o, answers: bufio.NewReader(g.stdin)}
	defer t.close()
	return t.run(cmd.Context(), args)
}

func (o trustOptions) check(args []string) error {
	switch {
	case o.list && (o.remove != "" || len(args) > 0 || o.prefixGiven || o.root):
		return errs.Newf(errs.Usage, "--list goes alone")
	case o.remove != "" && len(args) > 0:
		return errs.Newf(errs.Usage, "--remove takes no keys")
	case o.prefixGiven && o.root:
		return errs.Newf(errs.Usage, "--root required for non-prefixed (root) keys, and --prefix for the others: not both")
	case o.list || o.remove != "" || o.prefixGiven || o.root && len(args) > 0:
		return nil
	case o.root:
		return errs.Newf(errs.Usage, "--root: no key given")
	case len(args) == 0:
		return errs.WithHint(errs.Newf(errs.Usage, "must provide a key, or the --prefix to look for one"), "\"rkt help trust\" shows how")
	}
	return errs.WithHint(errs.Newf(errs.Usage, "--root required for non-prefixed (root) keys"),
		"--prefix=NAME trusts the key for the images of one publisher")
}

// truster adds keys for one command.
type truster struct {
	trustOptions
	g       *globals
	cmd     *cobra.Command
	policy  trust.Policy
	client  *remote.Client // nil until something is to be had from the network
	answers *bufio.Reader
}

func (t *truster) close() {
	if t.client != nil {
		// Everything that it brought is used already.
		_ = t.client.Close()
	}
}

func (t *truster) run(ctx context.Context, places []string) error {
	if len(places) == 0 {
		found, err := t.discover(ctx, t.prefix)
		if err != nil {
			return err
		}
		places = found
	}
	for _, place := range places {
		data, err := t.read(ctx, place)
		if err != nil {
			return err
		}
		keys, err := t.policy.Describe(ctx, data)
		if err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
		for _, k := range keys {
			if err := t.add(place, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// trustFirst is --trust-keys-from-https: if an image is going to be looked for by
// its name, and no key is trusted for it yet, those that its pages name are
// trusted unseen.
func (f *finder) trustFirst(ctx context.Context, r ref.Ref) error {
	if !f.g.trustHTTPS || r.Kind != ref.Name || f.Pull == fetch.PullNever {
		return nil
	}
	if _, err := f.Store.Lookup(r.Text); err == nil && f.Pull == fetch.PullNew {
		return nil
	}
	p, err := f.g.policy()
	if err != nil || !p.NeedsSignature(r.Name, false) || p.HasKeyFor(r.Name) {
		return err
	}
	t := &truster{g: f.g, cmd: f.cmd, policy: p, trustOptions: trustOptions{prefix: r.Name}}
	defer t.close()
	places, err := t.discover(ctx, r.Name)
	if err != nil {
		return nil // the search for the image goes the same way, and says what is wrong
	}
	places = slices.DeleteFunc(places, func(place string) bool {
		secure, ok := isURL(place)
		return !secure && !(ok && f.g.insecure["pubkey"])
	})
	if len(places) == 0 {
		return nil
	}
	f.Policy = f.g.policy // to be read anew, with the key
	return t.run(ctx, places)
}

// discover asks the pages of the name where its keys are.
func (t *truster) discover(ctx context.Context, name string) ([]string, error) {
	client, err := t.network(ctx)
	if err != nil {
		return nil, err
	}
	found, err := client.Discover(ctx, fetchwire.DiscoverRequest{Name: name})
	if err != nil {
		return nil, err
	}
	if len(found.Keys) == 0 {
		return nil, errs.WithHint(errs.Newf(errs.NotFound, "prefix %s: its pages name no public keys", name),
			"give the publisher's key as a file, or by its URL")
	}
	return found.Keys, nil
}

// isURL tells a key's URL from a file.
func isURL(place string) (secure, ok bool) {
	u, err := url.Parse(place)
	if err != nil || u.Host == "" {
		return false, false
	}
	return u.Scheme == "https", u.Scheme == "https" || u.Scheme == "http"
}

func (t *truster) read(ctx context.Context, place string) ([]byte, error) {
	secure, ok := isURL(place)
	switch {
	case !ok && strings.Contains(place, "://"):
		return nil, errs.Newf(errs.Usage, "%s: neither a file nor an http or https URL", place)
	case !ok:
		return userfile.Read(ctx, place, trust.MaxKeys)
	case !secure && !t.insecureHTTP():
		return nil, errs.WithHint(errs.Newf(errs.Denied, "%s: a key over plain http may be anybody's", place), "--insecure-allow-http takes it nevertheless")
	}
	client, err := t.network(ctx)
	if err != nil {
		return nil, err
	}
	_, body, err := client.HTTP(ctx, fetchwire.HTTPRequest{URL: place, MaxBytes: trust.MaxKeys}, nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, trust.MaxKeys+1))
	if err == nil && len(data) > trust.MaxKeys {
		err = errs.Newf(errs.Denied, "larger than %d KiB", trust.MaxKeys>>10)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", place, err)
	}
	return data, nil
}

func (t *truster) insecureHTTP() bool { return t.allowHTTP || t.g.insecure["pubkey"] }

func (t *truster) network(ctx context.Context) (*remote.Client, error) {
	if t.client != nil {
		return t.client, nil
	}
	o, err := (&finder{g: t.g, cmd: t.cmd, shown: map[string]shown{}}).network(fetchFlags{})
	if err != nil {
		return nil, err
	}
	o.Setup.InsecureHTTP = t.insecureHTTP()
	t.client, err = remote.Start(ctx, o)
	return t.client, err
}

// add trusts one key, once the user has seen it.
func (t *truster) add(place string, k sigwire.Key) error {
	t.show(place, k)
	if !t.skipReview {
		ok, err := t.review(place)
		if err != nil {
			return err
		}
		if !ok {
			t.g.note(t.cmd, "not trusting %q", place)
			return nil
		}
	}
	path, err := trust.Add(t.g.dirs.Local, t.prefix, k)
	if err != nil {
		return err
	}
	if t.prefix == "" {
		t.g.note(t.cmd, "Added root key at %q", path)
	} else {
		t.g.note(t.cmd, "Added key for prefix %q at %q", t.prefix, path)
	}
	return nil
}

// show says what there is to be compared.
func (t *truster) show(place string, k sigwire.Key) {
	say := func(format string, args ...any) {
		fmt.Fprintln(t.g.stderr, plain(fmt.Sprintf(format, args...)))
	}
	say("prefix: %q", t.prefix)
	say("key: %q", place)
	what := "gpg key fingerprint is"
	if k.Kind == sigwire.KindPEM {
		what = "public key SHA-256 is"
	}
	say("%s: %s (%s)", what, grouped(k.Fingerprint), k.Algorithm)
	for _, sub := range k.Subkeys {
		say("    subkey %s", grouped(sub))
	}
	for _, id := range k.Identities {
		say("    %s", id)
	}
	if k.Expires != nil {
		say("    expires %s", k.Expires.Format(time.DateOnly))
	}
}

// grouped writes a fingerprint as people compare it.
func grouped(hex string) string {
	var groups []string
	for hex = strings.ToUpper(hex); len(hex) > 4; hex = hex[4:] {
		groups = append(groups, hex[:4])
	}
	return strings.Join(append(groups, hex), " ")
}

// review asks until it gets an answer. Only a terminal is asked: nobody has read
// what a script answers.
func (t *truster) review(place string) (bool, error) {
	if secure, ok := isURL(place); t.g.trustHTTPS && (secure || ok && t.g.insecure["pubkey"]) {
		return true, nil
	}
	if !term.IsTerminal(int(t.g.stdin.Fd())) {
		return false, errs.WithHint(errs.Newf(errs.Denied, "unable to ask whether the fingerprint is right: stdin is no terminal"),
			"--skip-fingerprint-review trusts the key without a question")
	}
	for {
		fmt.Fprint(t.g.stderr, "Are you sure you want to trust this key (yes/no)? ")
		line, err := t.answers.ReadString('\n')
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "yes":
			return true, nil
		case "no":
			return false, nil
		}
		if err != nil {
			return false, errs.Newf(errs.Denied, "no answer: %w", err)
		}
		fmt.Fprintln(t.g.stderr, `Please enter "yes" or "no".`)
	}
}

// listedKey is a trusted key as trust --list prints it.
type listedKey struct {
	trust.TrustedKey
	Kind string `json:"kind"`
}

func (g *globals) listKeys(p trust.Policy, format string) error {
	keys := []listedKey{}
	for _, k := range p.Keys() {
		kind := sigwire.KindOpenPGP
		if k.PEM {
			kind = sigwire.KindPEM
		}
		keys = append(keys, listedKey{k, kind})
	}
	if format != "" {
		return printJSON(g.stdout, format, keys)
	}
	w := tabwriter.NewWriter(g.stdout, 2, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PREFIX\tKIND\tFINGERPRINT\tPATH")
	for _, k := range keys {
		prefix := k.Prefix
		if prefix == "" {
			prefix = "(root)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", plain(prefix), k.Kind, k.Fingerprint, plain(k.Path))
	}
	return w.Flush()
}

func (g *globals) removeKey(p trust.Policy, o trustOptions) error {
	var prefix *string
	if o.prefixGiven || o.root {
		prefix = &o.prefix
	}
	fingerprint := strings.ToLower(strings.ReplaceAll(o.remove, " ", ""))
	gone, err := p.Remove(fingerprint, prefix)
	for _, k := range gone {
		fmt.Fprintf(g.stdout, "Removed key for prefix %q at %q\n", k.Prefix, k.Path)
	}
	return err
}
