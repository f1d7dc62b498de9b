// Package lifecycle decides what happens in a pod: events in, actions out. It
// knows no clock, no process and no file, so that every rule of a pod's life
// can be tested exhaustively. Times come with the events, timers are actions.
//
//	event                        actions
//	Start                        StartApp for each app
//	AppStarted                   (what was asked for while it started)
//	AppExited, AppStartFailed    FinishApp; if the policy says so, the other
//	                             apps are stopped; EndPod after the last one
//	StopRequested                SignalApp and ArmStopTimer for each app;
//	                             a second one, a second later: KillApp
//	StopTimeout, KillRequested   KillApp
//	Failed                       KillApp, then EndPod with rkt's own code
//
// EndPod comes exactly once, after one FinishApp for each app, and nothing
// comes after it.
package lifecycle
