package poddir

import (
	"os"
	"path/filepath"
	"time"
)

// Data is the data folder that the pod lies in.
func (d Dir) Data() string { return filepath.Dir(filepath.Dir(filepath.Dir(string(d)))) }

// VolumeImage is the record, an AppImage, of an image that volumes show.
func (d Dir) VolumeImage(id string) string { return d.join("volume-images", id+".json") }

// VolumesDir is the parent of the named volumes' folders.
func VolumesDir(data string) string { return filepath.Join(data, "volumes") }

// NamedDir is the folder of a named volume:
//
//	volume.json   name, labels, time; its mtime is the last use (stage0)
//	data/         what pods mount
//	fresh         as long as no pod has used it (made by stage0, removed by stage1)
//	lock          held while a fresh volume gets an image's content (stage1)
//	seed.new/     what is copied out of the image
//	seed/         the whole copy, while it is moved to data/
type NamedDir string

// NamedVolume is the folder of a named volume.
func NamedVolume(data, name string) NamedDir {
	return NamedDir(filepath.Join(VolumesDir(data), name))
}

// The files of a named volume's folder.
func (d NamedDir) Record() string  { return filepath.Join(string(d), "volume.json") }
func (d NamedDir) Files() string   { return filepath.Join(string(d), "data") }
func (d NamedDir) Fresh() string   { return filepath.Join(string(d), "fresh") }
func (d NamedDir) Lock() string    { return filepath.Join(string(d), "lock") }
func (d NamedDir) SeedNew() string { return filepath.Join(string(d), "seed.new") }
func (d NamedDir) Seed() string    { return filepath.Join(string(d), "seed") }

// Touch notes that the volume is in use now. Only the order in which unused
// ones are removed one day depends on it, so nobody waits or fails for it.
func (d NamedDir) Touch() {
	now := time.Now()
	_ = os.Chtimes(d.Record(), now, now)
}
