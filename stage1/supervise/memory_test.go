package supervise

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// What is dropped comes back when it is needed, and is gone until then.
func TestTrim(t *testing.T) {
	before := rssFile(t)
	if err := trim(); err != nil {
		t.Fatal(err)
	}
	if after := rssFile(t); after >= before {
		t.Errorf("%d kB of the program mapped before, %d after", before, after)
	}
}

func rssFile(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
