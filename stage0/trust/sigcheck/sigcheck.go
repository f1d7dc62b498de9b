// Package sigcheck is what rkt-verify does: it reads keys and signatures, which
// strangers wrote, and does the arithmetic. It knows nothing of names, policies
// and folders, and has no need of any file.
package sigcheck

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/stage0/trust/sigwire"
)

// Serve answers the one request on in.
func Serve(in io.Reader, out io.Writer) error {
	data, err := io.ReadAll(io.LimitReader(in, sigwire.MaxRequest+1))
	if err != nil {
		return err
	}
	if len(data) > sigwire.MaxRequest {
		return errs.Newf(errs.Usage, "request: larger than %d MiB", sigwire.MaxRequest>>20)
	}
	var req sigwire.Request
	if err := json.Unmarshal(data, &req); err != nil {
		return errs.Newf(errs.Usage, "request: %w", err)
	}
	answer, err := Answer(req)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}

// Answer answers a request. The error is about the request alone: what is wrong
// with keys and signatures is in the answer.
func Answer(req sigwire.Request) (sigwire.Answer, error) {
	switch {
	case req.Keys != nil:
		return describe(req.Keys.Data, req.Now), nil
	case req.Inspect != nil:
		return inspect(*req.Inspect), nil
	case req.OpenPGP != nil:
		return verifyOpenPGP(*req.OpenPGP, req.Now), nil
	case req.Plain != nil:
		return verifyPlain(*req.Plain), nil
	}
	return sigwire.Answer{}, errs.Newf(errs.Usage, "request: asks nothing")
}

func refuse(reason sigwire.Reason, format string, args ...any) *sigwire.Refusal {
	return &sigwire.Refusal{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// describe tells the two kinds of key files apart.
func describe(data []byte, now time.Time) sigwire.Answer {
	if isPEM(data) {
		return describePEM(data)
	}
	return describeOpenPGP(data, now)
}
