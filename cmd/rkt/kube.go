package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/poddir"
	"github.com/rkt-pods/rkt/pkg/userfile"
	"github.com/rkt-pods/rkt/stage0/fetch"
	"github.com/rkt-pods/rkt/stage0/kube"
)

// kubeFlags are those of run and prepare that take a Kubernetes Pod.
type kubeFlags struct {
	file    string
	lenient bool
	pod     *kube.Pod // what is in the file
}

const lenientUsage = "leave out of the Pod what rkt does not know or can't do, with a warning"

func (k *kubeFlags) declare(fs *pflag.FlagSet) {
	fs.StringVar(&k.file, "kube", "", "Kubernetes Pod, as YAML, to take instead of images and their flags (- for stdin)")
	fs.BoolVar(&k.lenient, "lenient", false, lenientUsage)
}

func (k *kubeFlags) hostPaths() []kube.HostPath {
	if k.pod == nil {
		return nil
	}
	return k.pod.HostPaths
}

func newKube(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kube COMMAND",
		Short: "Work with Kubernetes Pods",
		Args:  cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return errs.WithHint(errs.Newf(errs.Usage, "missing command"), "\"rkt help kube\" lists them")
		},
	}
	cmd.AddCommand(newKubeCheck(g))
	return cmd
}

func newKubeCheck(g *globals) *cobra.Command {
	var lenient bool
	var format string
	cmd := &cobra.Command{
		Use:   "check [FLAGS] FILE…",
		Short: "Say what of a Kubernetes Pod rkt does not know or can't do",
		Long: `Reads Pods as "rkt run --kube" does and prints each problem with its line, one a
line. Nothing is fetched, and nothing on the host is looked at. The exit code
is 254 if there is a problem.`,
		Example: "  rkt kube check pod.yaml\n  kubectl get pod web -o yaml | rkt kube check --lenient -",
		RunE: func(cmd *cobra.Command, args []string) error {
			return runKubeCheck(cmd.Context(), g, args, lenient, format)
		},
	}
	cmd.Flags().BoolVar(&lenient, "lenient", false, "take what rkt does not know or can't do for no problem; it is listed all the same")
	cmd.Flags().StringVar(&format, "format", "", "json or json-pretty")
	return cmd
}

// kubeView is the JSON of kube check.
type kubeView struct {
	File     string        `json:"file"`
	Pod      string        `json:"pod"`
	OK       bool          `json:"ok"`
	Problems []problemView `json:"problems"`
}

type problemView struct {
	Path      string `json:"path"`
	Line      int    `json:"line"`
	Message   string `json:"message"`
	Ignorable bool   `json:"ignorable"`
}

func runKubeCheck(ctx context.Context, g *globals, args []string, lenient bool, format string) error {
	if err := checkFormat(format); err != nil {
		return err
	}
	if len(args) == 0 {
		return errs.WithHint(errs.Newf(errs.Usage, "missing file"), "\"rkt kube check pod.yaml\", or - for stdin")
	}
	views := []kubeView{}
	bad := 0
	for _, file := range args {
		pod, problems, err := readPod(ctx, file)
		if err != nil {
			return err
		}
		v := kubeView{File: file, Pod: pod.Name, OK: !slices.ContainsFunc(problems, func(p kube.Problem) bool { return !lenient || !p.Ignorable }), Problems: []problemView{}}
		for _, p := range problems {
			v.Problems = append(v.Problems, problemView{p.Path, p.Line, p.Text, p.Ignorable})
			if format == "" {
				if _, err := fmt.Fprintln(g.stdout, plain(problemAt(file, p))); err != nil {
					return err
				}
			}
		}
		switch {
		case !v.OK:
			bad++
		case format == "" && len(problems) == 0:
			if _, err := fmt.Fprintln(g.stdout, plain(fmt.Sprintf("%s: pod %s: nothing to complain of", file, pod.Name))); err != nil {
				return err
			}
		}
		views = append(views, v)
	}
	if format != "" {
		if err := printJSON(g.stdout, format, views); err != nil {
			return err
		}
	}
	if bad > 0 {
		return errs.WithHint(errs.Newf(errs.Usage, "%d of %d Pods can't be run as they are", bad, len(args)),
			"rkt's Documentation/kubernetes.md lists the fields; --lenient leaves out those that can't be honoured")
	}
	return nil
}

// problemAt is the problem as compilers write theirs.
func problemAt(file string, p kube.Problem) string {
	if p.Line > 0 {
		file = fmt.Sprintf("%s:%d", file, p.Line)
	}
	return file + ": " + p.Error()
}

func readPod(ctx context.Context, file string) (*kube.Pod, []kube.Problem, error) {
	path := file
	if file == "-" {
		path = "/dev/stdin"
	}
	data, err := userfile.Read(ctx, path, userfile.MaxText)
	if err != nil {
		return nil, nil, errs.WithHint(err, "a Kubernetes Pod as YAML is wanted")
	}
	pod, problems := kube.Read(data)
	return pod, problems, nil
}

// readKube turns the file of --kube into what flags would have said. What run
// was told of the pod's network, name and files itself comes first.
func (o *podFlags) readKube(ctx context.Context, g *globals, cmd *cobra.Command, run *runFlags) error {
	k := &o.kube
	if k.file == "" {
		if k.lenient {
			return errs.Newf(errs.Usage, "--lenient: only with --kube")
		}
		return nil
	}
	if o.conflicts(false) || o.manifest != "" {
		return errs.WithHint(errs.Newf(errs.Usage, "conflicting flags set with --kube (see --help)"), "write into the Pod what the other flags say")
	}
	pod, problems, err := readPod(ctx, k.file)
	if err != nil {
		return fmt.Errorf("--kube: %w", err)
	}
	for _, p := range problems {
		if k.lenient && p.Ignorable {
			g.warn(cmd, "%s, ignoring", problemAt(k.file, p))
			continue
		}
		return k.refuse(p, len(problems))
	}
	k.pod, o.volumes = pod, pod.Volumes
	for _, a := range pod.Apps {
		app := appArg{image: a.Image, plan: a.Plan}
		if a.Pull != "" || !o.fetch.pullGiven {
			app.pull = pulls[a.DefaultPull()]
		}
		o.apps.list = append(o.apps.list, app)
	}
	run.inherit(pod.Options)
	return nil
}

var pulls = map[kube.PullPolicy]fetch.Pull{
	kube.PullAlways: fetch.PullUpdate, kube.PullIfNotPresent: fetch.PullNew, kube.PullNever: fetch.PullNever,
}

func (k *kubeFlags) refuse(p kube.Problem, of int) error {
	class := errs.Usage
	if p.Ignorable {
		class = errs.Unsupported
	}
	err := errs.Newf(class, "--kube: %w", fmt.Errorf("%s", problemAt(k.file, p)))
	if p.Ignorable {
		err = errs.WithHint(err, "--lenient leaves it out")
	}
	if of > 1 {
		err = errs.WithHint(err, "it has %d problems: \"rkt kube check\" lists them", of)
	}
	return err
}

// inherit takes over what was said of the pod elsewhere, where these flags say
// nothing.
func (f *runFlags) inherit(from poddir.RunOptions) {
	o := &f.options
	if len(f.net) == 0 {
		f.net = from.Net
	}
	if o.Hostname == "" {
		o.Hostname = from.Hostname
	}
	if len(o.DNS)+len(o.DNSSearch)+len(o.DNSOptions) == 0 && o.DNSDomain == "" {
		o.DNS, o.DNSSearch, o.DNSOptions, o.DNSDomain = from.DNS, from.DNSSearch, from.DNSOptions, from.DNSDomain
	}
	if len(o.Hosts) == 0 && !o.HostsFromHost {
		o.Hosts, o.HostsFromHost = from.Hosts, from.HostsFromHost
	}
}
