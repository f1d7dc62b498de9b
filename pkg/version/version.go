// Package version has the one version string of all parts.
package version

// Version is set by the build from the file VERSION.
var Version = "unknown"
