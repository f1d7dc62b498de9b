//go:build !fault

package launchtest

func faultTests() []test { return nil }
