package libcontainer

import "github.com/rkt-pods/rkt/stage1/launch/cell"

// process implements launch.Process.
type process struct{ *cell.Process }

// abandon leaves nothing of a start that failed.
func (p *process) abandon() error {
	p.Abandon()
	reap(p.Leaf)
	return p.Destroy()
}
