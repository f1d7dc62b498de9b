package proc

import (
	"fmt"
	"os"
	"strings"
)

// MountPoints lists where the process sees something mounted, in the order of
// /proc/<pid>/mountinfo (proc_pid_mountinfo(5)).
func MountPoints(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 {
			points = append(points, unescape.Replace(f[4]))
		}
	}
	return points, nil
}

// unescape undoes what the kernel does to the characters that would end a field.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
