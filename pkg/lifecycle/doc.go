// Package lifecycle decides what happens in a pod: events in, actions out. It
// knows no clock, no process and no file, so that every rule of a pod's life
// can be tested exhaustively. Times come with the events, timers are actions.
//
//	event                        actions
//	Start                        StartApp for each app that waits for nothing
//	AppStarted, AppReady         StartApp for each app that waited for it;
//	                             ShowReady, PodReady
//	AppExited, AppStartFailed    FinishApp, and either ArmBackoff or what its
//	                             end means: StartApp or FinishApp of those
//	                             that waited for it; if the policy says so the
//	                             other apps are stopped; EndPod after the last
//	BackoffOver                  StartApp
//	AppUnfit                     KillApp
//	AppRestart, AppStop          SignalApp and ArmStopTimer for the one app
//	StopRequested                SignalApp and ArmStopTimer, the last started
//	                             first, each when nothing needs it any more;
//	                             a second one, a second later: KillApp
//	StopTimeout, KillRequested   KillApp
//	Failed                       KillApp, then EndPod with rkt's own code
//
// EndPod comes exactly once, after one last FinishApp for each app, and nothing
// comes after it. Documentation/devel/pod-lifecycle.md has the rules.
package lifecycle
