// Package lifecycle decides what happens in a pod: events in, actions out. It
// knows no clock, no process and no file, so that every rule of a pod's life
// can be tested exhaustively.
package lifecycle
