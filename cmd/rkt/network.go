package main

import (
	"context"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
	"github.com/rkt-pods/rkt/pkg/image"
	"github.com/rkt-pods/rkt/pkg/ref"
	"github.com/rkt-pods/rkt/pkg/version"
	"github.com/rkt-pods/rkt/stage0/auth"
	"github.com/rkt-pods/rkt/stage0/config"
	"github.com/rkt-pods/rkt/stage0/fetch"
	"github.com/rkt-pods/rkt/stage0/remote"
	"github.com/rkt-pods/rkt/stage0/trust"
)

// finder finds images for one command: in the store, in files, on the network.
type finder struct {
	*fetch.Fetcher
	g     *globals
	cmd   *cobra.Command
	bars  *progress
	mu    sync.Mutex
	shown map[string]shown // by host: the credential that it was shown
}

// shown is a credential that was given away, and where it is from.
type shown struct {
	request auth.Request
	step    auth.Step
}

// finder makes one; the caller calls close. Configuration, keys and what talks to
// strangers are only looked at once an image is really fetched.
func (g *globals) finder(cmd *cobra.Command, h host, flags fetchFlags, bars *progress) *finder {
	f := &finder{g: g, cmd: cmd, bars: bars, shown: map[string]shown{}}
	f.Fetcher = &fetch.Fetcher{
		Store: h.store, Pull: flags.pull, Policy: g.policy, Network: func(context.Context) (remote.Options, error) { return f.network(flags) },
		Options: fetch.Options{
			Policy: trust.Policy{AllowUnsigned: g.insecure["image"]}, Progress: bars.tell,
			Platform: flags.platform, Limits: flags.limits,
		},
	}
	return f
}

// policy reads what is demanded of images.
func (g *globals) policy() (trust.Policy, error) {
	c, err := config.Load(g.dirs, true)
	if err != nil {
		return trust.Policy{}, err
	}
	return trust.Load(trust.Options{System: g.dirs.System, Local: g.dirs.Local, Rules: c.Trust, AllowUnsigned: g.insecure["image"]})
}

// network says how strangers are reached.
func (f *finder) network(flags fetchFlags) (remote.Options, error) {
	f.bars.remote()
	c, err := config.Load(f.g.dirs, false)
	if err != nil {
		return remote.Options{}, err
	}
	setup := fetchwire.Setup{
		UserAgent: "rkt/" + version.Version, InsecureHTTP: f.g.insecure["http"], InsecureTLS: f.g.insecure["tls"],
		Registries: fetch.Registries(c.Registries), Limits: flags.limits.Wire(),
	}
	if err := remote.FromHost(&setup, os.Getenv); err != nil {
		return remote.Options{}, err
	}
	chain := auth.New(c)
	return remote.Options{Setup: setup, Credentials: func(ctx context.Context, r fetchwire.CredentialRequest) (fetchwire.Credential, error) {
		request := auth.Request{Host: r.Host, Repository: r.Repository}
		found, step, err := chain.Find(ctx, request)
		f.mu.Lock()
		f.shown[strings.ToLower(r.Host)] = shown{request, step}
		f.mu.Unlock()
		return fetchwire.Credential{User: found.User, Password: found.Password, Token: found.Token, Refresh: found.Identity}, err
	}}, nil
}

// close ends what the fetches have started. How that ends changes nothing.
func (f *finder) close() { _ = f.Close() }

// resolve finds the image that an argument names, or fetches it.
func (f *finder) resolve(ctx context.Context, arg, signature string) (image.Record, error) {
	r, err := ref.Parse(arg, isFile)
	if err != nil {
		return image.Record{}, err
	}
	f.Options.Signature = signature
	defer f.bars.flush()
	if err := f.trustFirst(ctx, r); err != nil {
		return image.Record{}, err
	}
	rec, err := f.Resolve(ctx, r)
	if f.g.debug {
		facts, missing := f.Sandbox(ctx)
		for _, fact := range facts {
			f.g.note(f.cmd, "rkt-fetch: %s", fact)
		}
		for _, m := range missing {
			f.g.note(f.cmd, "rkt-fetch: not on this host: %s", m)
		}
	}
	return rec, f.refused(r, err)
}

// refused says which credential it was that a registry did not let in.
func (f *finder) refused(r ref.Ref, err error) error {
	status := fetchwire.Status(err)
	if r.Kind != ref.OCI || status != 401 && status != 403 || !errs.Is(err, errs.Denied) {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.shown[strings.ToLower(r.Host)]
	if !ok {
		s.request = auth.Request{Host: r.Host, Repository: r.Repository}
	}
	return auth.Refused(s.request, s.step, err)
}
