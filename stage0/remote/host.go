package remote

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt-pods/rkt/pkg/errs"
	"github.com/rkt-pods/rkt/pkg/fetchwire"
)

// certFolders have a folder for each host with certificates: *.crt are
// authorities, NAME.cert and NAME.key a client's. The first folder that has one
// for the host counts.
var certFolders = []string{"/etc/containers/certs.d", "/etc/docker/certs.d"}

// hostRoots are where distributions keep the host's roots. rkt-fetch reads them
// itself: so many files would cost more than the rest of a small fetch.
var hostRoots = []string{
	"/etc/ssl/certs", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/certs", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
}

// maxCertFile bounds a file with certificates.
const maxCertFile = 4 << 20

// FromHost puts into a set-up what the host and the environment say about
// proxies and certificates. The files are read here, as some may be root's
// alone. SSL_CERT_FILE and SSL_CERT_DIR take the place of the host's roots.
func FromHost(s *fetchwire.Setup, getenv func(string) string) error {
	first := func(names ...string) string {
		for _, n := range names {
			if v := getenv(n); v != "" {
				return v
			}
		}
		return ""
	}
	s.Proxy = fetchwire.Proxy{
		HTTP:  first("HTTP_PROXY", "http_proxy"),
		HTTPS: first("HTTPS_PROXY", "https_proxy"),
		No:    first("NO_PROXY", "no_proxy"),
	}
	roots, err := readRoots(getenv("SSL_CERT_FILE"), getenv("SSL_CERT_DIR"))
	if err != nil {
		return err
	}
	s.Roots = roots
	s.Hosts, err = readHosts(certFolders)
	return err
}

func readRoots(file, folders string) (string, error) {
	named := filepath.SplitList(folders)
	if !slices.ContainsFunc(append(named, file), func(path string) bool { return path != "" && !slices.Contains(hostRoots, filepath.Clean(path)) }) {
		return "", nil
	}
	var all strings.Builder
	add := func(path string) error {
		data, err := readCert(path)
		if err == nil {
			all.WriteString(data + "\n")
		}
		return err
	}
	if file != "" {
		if err := add(file); err != nil {
			return "", errs.WithHint(err, "SSL_CERT_FILE names it")
		}
	}
	for _, dir := range named {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return "", errs.WithHint(errs.Newf(errs.NotFound, "certificates: %w", err), "SSL_CERT_DIR names it")
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
				continue // a link to what was removed, or a folder
			}
			if err := add(path); err != nil {
				return "", err
			}
		}
	}
	return all.String(), nil
}

func readHosts(folders []string) ([]fetchwire.HostTLS, error) {
	var all []fetchwire.HostTLS
	for _, dir := range folders {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errs.Newf(errs.Denied, "certificates: %w", err)
		}
		for _, e := range entries {
			host := e.Name()
			if slices.ContainsFunc(all, func(h fetchwire.HostTLS) bool { return h.Host == host }) {
				continue
			}
			h, err := readHost(filepath.Join(dir, host))
			if err != nil {
				return nil, err
			}
			if h != (fetchwire.HostTLS{}) {
				h.Host = host
				all = append(all, h)
			}
		}
	}
	return all, nil
}

func readHost(dir string) (h fetchwire.HostTLS, err error) {
	// Glob's pattern is well-formed unless the folder's name is not: then it
	// is no host's.
	authorities, _ := filepath.Glob(filepath.Join(dir, "*.crt"))
	for _, path := range authorities {
		pem, err := readCert(path)
		if err != nil {
			return h, err
		}
		h.CA += pem + "\n"
	}
	clients, _ := filepath.Glob(filepath.Join(dir, "*.cert"))
	if len(clients) == 0 {
		return h, nil
	}
	if h.Cert, err = readCert(clients[0]); err != nil {
		return h, err
	}
	h.Key, err = readCert(strings.TrimSuffix(clients[0], ".cert") + ".key")
	return h, err
}

func readCert(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", errs.Newf(errs.NotFound, "certificates: %w", err)
	}
	if info.Size() > maxCertFile {
		return "", errs.Newf(errs.Unsupported, "certificates: %s: more than %d bytes", path, maxCertFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", errs.Newf(errs.Denied, "certificates: %w", err)
	}
	return string(data), nil
}
