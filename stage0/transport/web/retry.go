package web

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// firstBackoff is the wait before the second attempt; it doubles.
const firstBackoff = 100 * time.Millisecond

// Backoff is the wait before an attempt, which are counted from 1.
func Backoff(attempt int) time.Duration {
	return firstBackoff << min(attempt-1, 6)
}

// retry sends a request until there is an answer that another attempt would
// not better. Of what was not waited for the last answer is returned.
func (c *Client) retry(req *http.Request, t *http.Transport) (*http.Response, error) {
	var waited time.Duration
	for attempt := 1; ; attempt++ {
		resp, err := t.RoundTrip(req)
		var pause time.Duration
		switch {
		case err != nil && !transient(err), err == nil && !busy(resp.StatusCode), attempt >= c.limits.Attempts:
			return resp, err
		case err != nil:
			pause = Backoff(attempt)
		default:
			pause = max(retryAfter(resp), Backoff(attempt))
			if pause > c.limits.RetryWait-waited {
				return resp, nil
			}
			resp.Body.Close()
		}
		waited += pause
		if err := Wait(req.Context(), pause); err != nil {
			return nil, err
		}
		if req.GetBody != nil {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			req.Body = body
		}
	}
}

func busy(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// transient says that a request was not answered and may be the next time.
func transient(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.IsTemporary
	}
	for _, e := range []error{unix.ECONNREFUSED, unix.ECONNRESET, unix.EPIPE, unix.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return isCut(err)
}

// retryAfter reads the header in both of its forms.
func retryAfter(resp *http.Response) time.Duration {
	text := resp.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 && seconds < 1e6 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return time.Until(at)
	}
	return 0
}

// StatusError says what an answer's status means for who asked for what.
func StatusError(resp *http.Response, what string) error {
	status := resp.StatusCode
	class := errs.Corrupt
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		class = errs.Denied
	case status == http.StatusNotFound, status == http.StatusGone:
		class = errs.NotFound
	case busy(status), status >= 500:
		class = errs.Unavailable
	}
	err := errs.Newf(class, "%s: %s answers %s", what, resp.Request.URL.Host, statusText(status))
	if after := retryAfter(resp); after > 0 && busy(status) {
		err = errs.WithHint(err, "it asks to wait %s", after.Round(time.Second))
	}
	return fetchwire.StatusError(status, err)
}

func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return strconv.Itoa(status) + " " + text
	}
	return strconv.Itoa(status)
}
