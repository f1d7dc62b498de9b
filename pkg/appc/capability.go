package appc

import (
	"slices"
	"strings"

	"github.com/moby/sys/capability"
)

// DefaultCapabilities is the bounding set of an app that asks for none.
func DefaultCapabilities() []string {
	return []string{
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
		"CAP_MKNOD", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID",
		"CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
	}
}

// IsCapability says whether any kernel has a capability of the name. Whether
// this one does, and may give it away, is told when the pod is started.
func IsCapability(name string) bool {
	return slices.ContainsFunc(capability.ListKnown(), func(c capability.Cap) bool {
		return "CAP_"+strings.ToUpper(c.String()) == name
	})
}
