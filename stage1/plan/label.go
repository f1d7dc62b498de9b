package plan

import (
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// sharedLabel is what files of all containers have: the type is the one that
// every container policy has, the level is below each that a pod can have.
const sharedLabel = "system_u:object_r:container_file_t:s0"

// label says which SELinux context the sources get that are to fit their
// apps: z fits all pods, Z only those of the level that the apps run with.
func (s *volumeSet) label(apps []App, host Host) error {
	for i := range s.list {
		v := &s.list[i]
		asked := s.spec[v.Name].SELinux
		if asked == "" || !s.inUse[v.Name] {
			continue
		}
		if !host.SELinux {
			return errs.WithHint(errs.Newf(errs.Unsupported, "volume %q: selinux=%s: this host has no SELinux", v.Name, asked),
				"leave it out: without labels nothing keeps the pod from its volume")
		}
		v.Label = sharedLabel
		if asked == "z" {
			continue
		}
		level, err := levelOf(v.Name, apps)
		if err != nil {
			return err
		}
		v.Label = strings.TrimSuffix(sharedLabel, "s0") + level
	}
	return nil
}

// levelOf is the level of all apps that mount the volume.
func levelOf(volume string, apps []App) (string, error) {
	found := ""
	for _, a := range apps {
		for _, m := range a.Mounts {
			if !m.VolumeEntry || m.Volume != volume {
				continue
			}
			parts := strings.SplitN(a.ProcessLabel, ":", 4)
			if len(parts) < 4 || found != "" && parts[3] != found {
				return "", errs.WithHint(errs.Newf(errs.Unsupported, "volume %q: selinux=Z: app %s has no level that is the volume's alone", volume, a.Name),
					"the isolator os/linux/selinux-context gives one to the apps; selinux=z is for all pods")
			}
			found = parts[3]
		}
	}
	return found, nil
}
