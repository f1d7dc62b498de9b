//go:build seccomp

package libcontainer

import "github.com/seccomp/libseccomp-golang"

// KnowsCall says whether a filter can have a rule for the system call. The
// library's table has the calls of all architectures in one; of a name that it
// lacks it makes no rule and says nothing.
func KnowsCall(name string) bool {
	_, err := seccomp.GetSyscallFromName(name)
	return err == nil
}
