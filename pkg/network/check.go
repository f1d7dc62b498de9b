package network

import (
	"net"
	"path/filepath"

	"github.com/rkt-pods/rkt/pkg/cni"
	"github.com/rkt-pods/rkt/pkg/errs"
)

// checkPTP says what the host lacks of an interface.
func checkPTP(c cni.Call) error {
	name, err := networkOf(c)
	if err != nil {
		return err
	}
	link := HostLink(c.ContainerID, c.IfName)
	if _, err := net.InterfaceByName(link); err != nil {
		return errs.Newf(errs.Corrupt, "link %s: not there", link)
	}
	list, err := Leases(leaseDir(name))
	if err != nil {
		return err
	}
	for _, h := range list {
		if h.Owner == c.ContainerID {
			return nil
		}
	}
	return errs.Newf(errs.Corrupt, "no lease of an address in %s", filepath.Join("leases", name))
}
