package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	pb "github.com/lianadb/liana/proto/liana/v1"
	gateway "github.com/lianadb/liana/server/web/gateway"
)

// Config says what a door leads to and whom it lets in.
type Config struct {
	// Conn is where the calls go. Its errors are statuses.
	Conn grpc.ClientConnInterface
	// MaxBody is the largest body that is read, in bytes.
	MaxBody int
	// MaxTime bounds the reading of a body, and each write to a client that does not
	// take what it asked for.
	MaxTime time.Duration
	// Hosts are the names, beside localhost and all IP addresses, under which browsers
	// may know this server.
	Hosts []string
	// Origins are those of the web pages, such as https://app.example.com, that may use
	// the door beside its own; "*" is all.
	Origins []string
}

// Door answers HTTP requests.
type Door struct {
	cfg Config
	mux *runtime.ServeMux
}

// New returns a door. It holds nothing that must be closed.
func New(cfg Config) (*Door, error) {
	d := &Door{cfg: cfg}
	d.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, newMarshaler()),
		runtime.WithErrorHandler(fail),
		runtime.WithRoutingErrorHandler(noRoute),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllCharacters),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithIncomingHeaderMatcher(noHeader),
		runtime.WithOutgoingHeaderMatcher(noHeader),
		runtime.WithOutgoingTrailerMatcher(noHeader),
		runtime.WithMiddlewares(routesOf(files()).checkQuery),
	)
	ctx := context.Background() // ends nothing: the connection is not the gateway's
	return d, errors.Join(
		gateway.RegisterGraphHandlerClient(ctx, d.mux, pb.NewGraphClient(cfg.Conn)),
		gateway.RegisterCountersHandlerClient(ctx, d.mux, pb.NewCountersClient(cfg.Conn)),
		gateway.RegisterAdminHandlerClient(ctx, d.mux, pb.NewAdminClient(cfg.Conn)),
		gateway.RegisterClusterHandlerClient(ctx, d.mux, pb.NewClusterClient(cfg.Conn)),
		gateway.RegisterCacheHandlerClient(ctx, d.mux, pb.NewCacheClient(cfg.Conn)),
		gateway.RegisterChangesHandlerClient(ctx, d.mux, pb.NewChangesClient(cfg.Conn)),
	)
}

// noHeader keeps HTTP headers and gRPC metadata apart: nothing here has a meaning on
// both sides but Grpc-Timeout, which the gateway knows.
func noHeader(string) (string, bool) { return "", false }

// Handler answers for the API, and leaves the rest of the paths to next. It is no mux
// below another one: those answer a//b with a redirect to a/b, which is another key.
func (d *Door) Handler(next http.Handler) http.Handler {
	api := d.Guard(d.open(http.HandlerFunc(d.call)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			api.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Mount adds the document and its page to mux.
func (d *Door) Mount(mux *http.ServeMux) {
	mux.Handle("/openapi.json", d.open(http.HandlerFunc(document)))
	mux.HandleFunc("GET /docs", page)
	mux.Handle("GET /docs/", pageFiles())
}

// call is a request of the API whose origin may make it.
func (d *Door) call(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w = &patientWriter{ResponseWriter: w, patience: d.cfg.MaxTime}
	if err := d.readBody(w, r); err != nil {
		refuse(w, err)
		return
	}
	d.mux.ServeHTTP(w, r.WithContext(withPeer(r)))
}

// withPeer tells the server's log who called.
func withPeer(r *http.Request) context.Context {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.Context()
	}
	return peer.NewContext(r.Context(), &peer.Peer{Addr: net.TCPAddrFromAddrPort(addr)})
}
