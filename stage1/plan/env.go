package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/appc"
)

// DefaultPath is the PATH of an app whose image and manifest give none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is the manifest's, on top of what every app gets. AC_APP_NAME
// and container are rkt's to say and can't be set from outside: programs
// trust them to find out where they run. The result is sorted, so that two
// runs of one pod give the same environment.
func environment(app string, vars []appc.EnvVar, term string) []string {
	m := map[string]string{"PATH": DefaultPath}
	if term != "" {
		m["TERM"] = term
	}
	for _, v := range vars {
		m[v.Name] = v.Value
	}
	m["AC_APP_NAME"] = app
	m["container"] = "rkt"
	env := make([]string, 0, len(m))
	for k, v := range m {
		env = append(env, k+"="+v)
	}
	slices.Sort(env)
	return env
}

// Getenv returns the value of the variable in env, "" if it isn't there.
func Getenv(env []string, name string) string {
	for _, kv := range env {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			return v
		}
	}
	return ""
}

func wrap(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
