package plan

import (
	"time"

	"github.com/rkt-pods/rkt/pkg/appc"
	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/podspec"
)

// stopRules take the app's own annotations before the image's.
func stopRules(app *App, own, image appc.Annotations) error {
	app.StopSignal, app.StopTimeout = podspec.DefaultStopSignal, podspec.DefaultStopTimeout
	if v, ok := annotation(podspec.AnnStopSignal, own, image); ok {
		n, err := podspec.ParseSignal(v)
		if err != nil {
			return wrap("stop signal", errs.WithClass(errs.Usage, err))
		}
		app.StopSignal = n
	}
	if v, ok := annotation(podspec.AnnStopTimeout, own, image); ok {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			return errs.Newf(errs.Usage, "stop timeout %q: not a duration such as 10s", v)
		}
		app.StopTimeout = d
	}
	return nil
}

func annotation(name string, lists ...appc.Annotations) (string, bool) {
	for _, l := range lists {
		if v, ok := l.Get(name); ok {
			return v, true
		}
	}
	return "", false
}
