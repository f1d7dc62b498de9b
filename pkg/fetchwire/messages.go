// Package fetchwire is what rkt and rkt-fetch, the program that talks to
// strangers in its stead, say to each other: one JSON message a packet over a
// socket pair, with the content of whatever is fetched in pipes beside it. The
// first message is rkt's set-up. Then rkt sends requests, many at once, and
// for each come a head, perhaps progress, and an end.
//
// rkt takes the other side for hostile: a message that is too long, has a
// field that is not known here or descriptors with it ends the conversation.
package fetchwire

import (
	"time"

	"github.com/rkt-pods/rkt/pkg/errs"
)

// Socket is the descriptor of rkt-fetch's end of the socket pair.
const Socket = 3

// Mode is the only argument of rkt-fetch: what it will be asked to do, and so
// what the kernel lets it do.
type Mode string

// The modes.
const (
	Network Mode = "network"    // fetch and decompress
	Unpack  Mode = "decompress" // decompress only, with no network at all
)

// Message is one packet. Exactly one of the pointers is set; the ID is the one
// of the request that it belongs to, where it belongs to one.
type Message struct {
	ID       uint64             `json:"id,omitempty"`
	Setup    *Setup             `json:"setup,omitempty"`    // rkt, once
	Request  *Request           `json:"request,omitempty"`  // rkt
	Cancel   *Cancel            `json:"cancel,omitempty"`   // rkt: the request's result is not wanted any more
	Answer   *Credential        `json:"answer,omitempty"`   // rkt, to Ask; ID is the one of Ask
	Sandbox  *Sandbox           `json:"sandbox,omitempty"`  // rkt-fetch, once, after the set-up
	Head     *Head              `json:"head,omitempty"`     // rkt-fetch, at most once a request
	Progress *Progress          `json:"progress,omitempty"` // rkt-fetch
	End      *End               `json:"end,omitempty"`      // rkt-fetch, exactly once a request
	Ask      *CredentialRequest `json:"ask,omitempty"`      // rkt-fetch; ID counts these alone
}

// Cancel has no content.
type Cancel struct{}

// Setup is what holds for all requests.
type Setup struct {
	UserAgent    string     `json:"userAgent,omitempty"`
	InsecureHTTP bool       `json:"insecureHTTP,omitempty"` // plain http where https does not answer, and where a URL says http
	InsecureTLS  bool       `json:"insecureTLS,omitempty"`  // certificates are not checked
	Registries   []Registry `json:"registries,omitempty"`
	Proxy        Proxy      `json:"proxy,omitzero"`
	Roots        string     `json:"roots,omitempty"` // PEM; empty: those of the host
	Hosts        []HostTLS  `json:"hosts,omitempty"`
	Limits       Limits     `json:"limits,omitzero"`
}

// Registry is what is configured for one registry.
type Registry struct {
	Name        string   `json:"name"` // as in references: "docker.io", "host:port"
	PlainHTTP   bool     `json:"plainHTTP,omitempty"`
	InsecureTLS bool     `json:"insecureTLS,omitempty"`
	Mirrors     []Mirror `json:"mirrors,omitempty"` // asked in this order, before the registry itself
}

// Mirror serves the repositories of a registry, below Prefix if it has one.
type Mirror struct {
	Host        string `json:"host"`
	Prefix      string `json:"prefix,omitempty"`
	PlainHTTP   bool   `json:"plainHTTP,omitempty"`
	InsecureTLS bool   `json:"insecureTLS,omitempty"`
}

// Proxy is the proxy environment, as in HTTP_PROXY, HTTPS_PROXY, NO_PROXY.
type Proxy struct {
	HTTP  string `json:"http,omitempty"`
	HTTPS string `json:"https,omitempty"`
	No    string `json:"no,omitempty"`
}

// HostTLS has the certificates for one host, in PEM.
type HostTLS struct {
	Host string `json:"host"`         // "host" or "host:port"
	CA   string `json:"ca,omitempty"` // accepted beside the roots
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
}

// Limits bound what a stranger can make rkt-fetch do. A zero stands for the
// default, which Fill puts in.
type Limits struct {
	Connect      time.Duration `json:"connect,omitempty"`      // for a connection, TLS included
	Response     time.Duration `json:"response,omitempty"`     // from a request to the end of the answer's header
	Stall        time.Duration `json:"stall,omitempty"`        // a body has to bring StallBytes in each such time
	StallBytes   int64         `json:"stallBytes,omitempty"`   //
	Total        time.Duration `json:"total,omitempty"`        // for a manifest, a discovery or a referrers list as a whole
	RetryWait    time.Duration `json:"retryWait,omitempty"`    // the longest Retry-After that is obeyed
	Attempts     int           `json:"attempts,omitempty"`     // attempts in a row that bring nothing new
	Redirects    int           `json:"redirects,omitempty"`    //
	MaxManifest  int64         `json:"maxManifest,omitempty"`  // bytes of a manifest, an index or a discovery page
	MaxExpansion int64         `json:"maxExpansion,omitempty"` // decompressed bytes for each compressed one
	MaxSize      int64         `json:"maxSize,omitempty"`      // decompressed bytes of a stream
	MaxWindow    int64         `json:"maxWindow,omitempty"`    // memory that a compressed stream may ask for
}

// Fill puts the defaults in.
func (l Limits) Fill() Limits {
	return Limits{
		Connect:      or(l.Connect, 15*time.Second),
		Response:     or(l.Response, 30*time.Second),
		Stall:        or(l.Stall, 30*time.Second),
		StallBytes:   or(l.StallBytes, 16<<10),
		Total:        or(l.Total, 2*time.Minute),
		RetryWait:    or(l.RetryWait, time.Minute),
		Attempts:     or(l.Attempts, 5),
		Redirects:    or(l.Redirects, 10),
		MaxManifest:  or(l.MaxManifest, 4<<20),
		MaxExpansion: or(l.MaxExpansion, 2000),
		MaxSize:      or(l.MaxSize, 1<<40),
		MaxWindow:    or(l.MaxWindow, 128<<20),
	}
}

func or[T time.Duration | int | int64](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// Request asks for one thing. Exactly one of the pointers is set. The content
// is written to the first descriptor that came with it.
type Request struct {
	Manifest   *ManifestRequest   `json:"manifest,omitempty"`
	Blob       *BlobRequest       `json:"blob,omitempty"`
	Referrers  *ReferrersRequest  `json:"referrers,omitempty"`
	HTTP       *HTTPRequest       `json:"http,omitempty"`
	Discover   *DiscoverRequest   `json:"discover,omitempty"`
	Decompress *DecompressRequest `json:"decompress,omitempty"`
}

// Repository names a repository of a registry.
type Repository struct {
	Registry string `json:"registry"` // "docker.io", "host:port"
	Name     string `json:"name"`     // "library/busybox"
}

// ManifestRequest asks for a manifest or an index.
type ManifestRequest struct {
	Repository  Repository `json:"repository"`
	Reference   string     `json:"reference"`             // a tag or a digest; a digest is checked
	Accept      []string   `json:"accept,omitempty"`      // media types; empty: all that rkt reads
	IfNoneMatch string     `json:"ifNoneMatch,omitempty"` // an ETag of before: status 304 and no content if it still fits
	KnownDigest string     `json:"knownDigest,omitempty"` // HEAD first: status 304 and no content if the tag still has it
}

// Descriptor is what a manifest says about a blob.
type Descriptor struct {
	MediaType string `json:"mediaType,omitempty"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// BlobRequest asks for a blob. Size and digest are checked on the way; the end
// is only a success if they fit.
type BlobRequest struct {
	Repository Repository `json:"repository"`
	Descriptor Descriptor `json:"descriptor"`
	Decompress bool       `json:"decompress,omitempty"` // the first descriptor gets the tar, the second, if there is one, the blob
}

// ReferrersRequest asks which manifests refer to the digest: by the referrers
// API, else by the tag that stands for it. The content is an OCI index, an
// empty one if there are none.
type ReferrersRequest struct {
	Repository   Repository `json:"repository"`
	Digest       string     `json:"digest"`
	ArtifactType string     `json:"artifactType,omitempty"`
}

// HTTPRequest asks for what a URL names.
type HTTPRequest struct {
	URL         string `json:"url"`
	IfNoneMatch string `json:"ifNoneMatch,omitempty"` // status 304 and no content if it still fits
	Accept      string `json:"accept,omitempty"`
	MaxBytes    int64  `json:"maxBytes,omitempty"` // 0: Limits.MaxManifest
}

// DiscoverRequest asks where an image of that appc name is published. The
// content is a Discovery in JSON.
type DiscoverRequest struct {
	Name       string            `json:"name"`
	Labels     map[string]string `json:"labels,omitempty"`
	ImagesOnly bool              `json:"imagesOnly,omitempty"` // no keys: the first page with images is the last
}

// Discovery is what meta discovery found.
type Discovery struct {
	Page    string     `json:"page,omitempty"` // the page that had the tags
	Images  []ImageURL `json:"images,omitempty"`
	KeyPage string     `json:"keyPage,omitempty"`
	Keys    []string   `json:"keys,omitempty"` // URLs of public keys
}

// ImageURL is where an image and its signature are published.
type ImageURL struct {
	ACI string `json:"aci"`
	Asc string `json:"asc"`
}

// DecompressRequest asks to decompress what comes from the first descriptor
// into the second.
type DecompressRequest struct{}

// Head comes before the first byte of the content.
type Head struct {
	Status      int         `json:"status,omitempty"` // of HTTP
	MediaType   string      `json:"mediaType,omitempty"`
	Size        int64       `json:"size"` // -1: not known
	Digest      string      `json:"digest,omitempty"`
	ETag        string      `json:"etag,omitempty"`
	MaxAge      int64       `json:"maxAge,omitempty"` // seconds, of Cache-Control; 0: none, or not to be kept
	URL         string      `json:"url,omitempty"`    // where it came from in the end, without a query
	Compression Compression `json:"compression,omitempty"`
}

// Progress counts the bytes that came over the network, each once.
type Progress struct {
	Bytes int64 `json:"bytes"`
}

// End is how a request ended. A nil Failure is a success.
type End struct {
	Failure *Failure `json:"failure,omitempty"`
}

// Failure is an error on its way to the other side.
type Failure struct {
	Class   errs.Class `json:"class"`
	Message string     `json:"message"`
	Hints   []string   `json:"hints,omitempty"`
	Status  int        `json:"status,omitempty"` // of HTTP, if that was it
}

// CredentialRequest asks for the credential of a host.
type CredentialRequest struct {
	Kind       CredentialKind `json:"kind"`
	Host       string         `json:"host"` // of a registry as references name it, or of a URL
	Repository string         `json:"repository,omitempty"`
}

// CredentialKind is what a credential is for.
type CredentialKind string

// The kinds of credentials.
const (
	ForRegistry CredentialKind = "registry"
	ForURL      CredentialKind = "http"
)

// Credential is the answer: a user and a password, or a token, or nothing.
type Credential struct {
	User     string   `json:"user,omitempty"`
	Password string   `json:"password,omitempty"`
	Token    string   `json:"token,omitempty"`   // a bearer token to be sent as it is
	Refresh  string   `json:"refresh,omitempty"` // an identity token, to be changed for a bearer token
	Failure  *Failure `json:"failure,omitempty"` // why there is none although there should be
}

// Sandbox says how far rkt-fetch is confined, in words for people.
type Sandbox struct {
	Facts   []string `json:"facts"`
	Missing []string `json:"missing,omitempty"` // what this host's kernel lacks
}
