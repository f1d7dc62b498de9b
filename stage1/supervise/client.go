package supervise

import (
	"encoding/json"
	"net"
	"time"
)

// client is a connection to a pod's supervisor, which ends with it.
type client struct {
	conn *net.UnixConn
	in   *json.Decoder
}

func dial(runDir string) (*client, error) {
	path, dir, err := socketAddress(runDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return &client{conn, json.NewDecoder(conn)}, nil
}

// ask sends a request.
func (c *client) ask(r request) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(ioTimeout)); err != nil {
		return err
	}
	_, err = c.conn.Write(append(data, '\n'))
	return err
}

// answer waits for a line; the error is os.ErrDeadlineExceeded if none comes
// in time.
func (c *client) answer(within time.Duration) (reply, error) {
	var r reply
	if err := c.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return r, err
	}
	if err := c.in.Decode(&r); err != nil {
		return r, err
	}
	return r, r.err()
}
