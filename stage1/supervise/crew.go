package supervise

import "sync"

// crew are goroutines that somebody waits for once, and which may be started
// until then from anywhere. The zero value is ready.
type crew struct {
	mu   sync.Mutex
	wg   sync.WaitGroup
	over bool
}

// start runs f, unless the crew has been waited for.
func (c *crew) start(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.wg.Go(f)
	}
}

// finish returns when all have ended; nobody starts any more.
func (c *crew) finish() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.wg.Wait()
}
