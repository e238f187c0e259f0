package web

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
)

// A server on the loopback address is reached by every page that its user has open in
// a browser. What keeps them out is said here: the name of the server, the origin of
// the page, and (in body.go) a content type that no page can post unasked.

// Guard refuses requests that know the server under a name that is not its own: a
// page whose name's address was changed to ours, after the browser had loaded it
// (DNS rebinding), is of the same origin for the browser.
func (d *Door) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.knows(hostname(r.Host)) {
			refuse(w, &refusal{http: http.StatusMisdirectedRequest, code: codes.PermissionDenied, reason: reasonHost,
				message: "the Host header names another server; http.hosts of the configuration lists what this one is called"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knows reports whether a host is this server: an address cannot be rebound, a name
// must be its own.
func (d *Door) knows(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return true
	}
	return slices.ContainsFunc(d.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// hostname is a Host header without port and brackets.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// open lets requests through that no browser sends, those of the door's own pages, and
// those of the origins of the configuration, which are told that they may read the
// answer.
func (d *Door) open(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		switch {
		case origin == "" && !foreign(r), origin != "" && sameOrigin(origin, r):
		case origin != "" && d.admits(origin):
			allow(w, r, origin)
		default:
			refuse(w, &refusal{http: http.StatusForbidden, code: codes.PermissionDenied, reason: reasonOrigin,
				message: "pages of this origin may not use the server; http.cors_origins of the configuration lists those that may"})
			return
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (d *Door) admits(origin string) bool {
	return slices.Contains(d.cfg.Origins, "*") || slices.Contains(d.cfg.Origins, origin)
}

// foreign reports whether a page of another site caused the request without an origin,
// as an image does. A link that somebody followed is no such request.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate"
}

func sameOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// preflightAge is for how long a browser need not ask again, in seconds.
const preflightAge = "600"

func allow(w http.ResponseWriter, r *http.Request, origin string) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Retry-After")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE")
		h.Set("Access-Control-Allow-Headers", "Content-Type, Grpc-Timeout")
		h.Set("Access-Control-Max-Age", preflightAge)
	}
}
