//go:build !amd64

package launchtest

func archTests() []test { return nil }
