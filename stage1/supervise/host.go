package supervise

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/moby/sys/capability"

	"github.com/rkt-pods/rkt/stage1/plan"
)

// hostFacts asks what this process can give, so that a plan asks for nothing
// more.
func hostFacts() (plan.Host, error) {
	h := plan.Host{Arch: runtime.GOARCH}
	own, err := capability.NewPid2(0)
	if err == nil {
		err = own.Load()
	}
	if err != nil {
		return h, fmt.Errorf("capabilities: %w", err)
	}
	for _, c := range capability.ListKnown() {
		// What is bounded but not permitted can't be handed on either.
		if own.Get(capability.BOUNDING, c) && own.Get(capability.PERMITTED, c) {
			h.Bounding = append(h.Bounding, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	h.SysResource = own.Get(capability.EFFECTIVE, capability.CAP_SYS_RESOURCE)
	data, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return h, err
	}
	if h.OOMScoreAdj, err = strconv.Atoi(strings.TrimSpace(string(data))); err != nil {
		return h, fmt.Errorf("oom_score_adj: %w", err)
	}
	h.MachineHosts = exists("/etc/hosts")
	h.ResolvConf = exists("/etc/resolv.conf")
	return h, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
