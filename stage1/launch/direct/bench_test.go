package direct

import "testing"

func BenchmarkStartList(b *testing.B) {
	app, id, f := sample()
	mounts, err := parseMounts(app.Mounts, true)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		compileStart(app, id, mounts, f).bytes(f.files.count)
	}
}
