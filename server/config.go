package server

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lianadb/liana/server/resp"
)

// Config says where the server listens and how much it takes on. Each field is
// described in docs/configuration.md under its YAML name.
type Config struct {
	// Addresses, host:port; port 0 takes a free one.
	GRPCAddr string `yaml:"grpc_addr"`
	HTTPAddr string `yaml:"http_addr"`
	RESPAddr string `yaml:"resp_addr"`
	PeerAddr string `yaml:"peer_addr"`
	// AllowRemote permits addresses that other machines can reach. There is no
	// authentication: whoever reaches a port may read and write everything.
	AllowRemote bool       `yaml:"allow_remote"`
	HTTP        HTTPConfig `yaml:"http"`
	// StopTimeout bounds a graceful stop, from the signal to the end of the process.
	StopTimeout time.Duration `yaml:"stop_timeout"`
	// SlowCall: calls that take longer are logged; 0: none are.
	SlowCall time.Duration `yaml:"slow_call"`
	Limits   Limits        `yaml:"limits"`
	RESP     resp.Config   `yaml:"resp"`
	Disk     DiskConfig    `yaml:"disk"`
}

// Limits bound what clients can ask of the process at once.
type Limits struct {
	// MaxMessageBytes is the largest request that is read.
	MaxMessageBytes int `yaml:"max_message_bytes"`
	// MaxConnectionCalls bounds the calls in flight on one connection; a client
	// waits for more.
	MaxConnectionCalls uint32 `yaml:"max_connection_calls"`
	// MaxCalls bounds the calls in flight on all connections; more are refused with
	// RESOURCE_EXHAUSTED.
	MaxCalls int `yaml:"max_calls"`
	// MaxCallBytes bounds the requests being handled together, streams included, in
	// bytes as they were sent; decoded they take about three times that.
	MaxCallBytes int `yaml:"max_call_bytes"`
	// MaxStreams bounds the open streams, as MaxCalls does calls.
	MaxStreams int `yaml:"max_streams"`
	// MaxCallTime is the deadline of a call (or of a batch in a stream) that has
	// none, and the latest that a client can ask for.
	MaxCallTime time.Duration `yaml:"max_call_time"`
}

// HTTPConfig says which browsers may use the HTTP port.
type HTTPConfig struct {
	// CORSOrigins are the origins of web pages, such as https://app.example.com, with
	// commas between, that may call the JSON API; * is all. Empty: none but its own.
	CORSOrigins string `yaml:"cors_origins"`
	// Hosts are the names of this server, with commas between, beside localhost, the
	// host of http_addr and IP addresses. Requests for another name are refused.
	Hosts string `yaml:"hosts"`
}

func (h HTTPConfig) origins() []string { return words(h.CORSOrigins) }
func (h HTTPConfig) hosts() []string   { return words(h.Hosts) }

// words are the parts of a list with commas between.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func (h HTTPConfig) validate() error {
	var errs []error
	for _, o := range h.origins() {
		u, err := url.Parse(o)
		if o != "*" && (err != nil || u.Host == "" || o != u.Scheme+"://"+u.Host) {
			errs = append(errs, fmt.Errorf("http.cors_origins: %q is no origin, such as https://app.example.com, without a path, or *", o))
		}
	}
	for _, n := range h.hosts() {
		if strings.ContainsAny(n, ":/") {
			errs = append(errs, fmt.Errorf("http.hosts: %q is no host name; leave scheme and port away", n))
		}
	}
	return errors.Join(errs...)
}

// DiskConfig says how much of the disk stays free.
type DiskConfig struct {
	// ReserveBytes: with less free space writes are refused, and deletes with
	// less than half; 0: never.
	ReserveBytes uint64 `yaml:"reserve_bytes"`
}

// Defaults is a server for one machine, on the ports 7400 to 7403 of the
// loopback address.
func Defaults() Config {
	return Config{
		GRPCAddr:    "127.0.0.1:7400",
		HTTPAddr:    "127.0.0.1:7401",
		RESPAddr:    "127.0.0.1:7402",
		PeerAddr:    "127.0.0.1:7403",
		StopTimeout: 10 * time.Second,
		SlowCall:    500 * time.Millisecond,
		Limits: Limits{
			MaxMessageBytes:    4 << 20, // what a default gRPC client sends and takes
			MaxConnectionCalls: 1024,
			MaxCalls:           8192,
			MaxCallBytes:       64 << 20, // the largest message 16 times
			MaxStreams:         256,
			MaxCallTime:        30 * time.Second,
		},
		RESP: resp.Defaults(),
		Disk: DiskConfig{ReserveBytes: 512 << 20},
	}
}

// Validate names every field that is wrong, by its YAML name.
func (c Config) Validate() error {
	return errors.Join(c.validateAddrs(), c.validateTimes(), c.HTTP.validate(), c.Limits.validate(), c.RESP.Validate())
}

func (c Config) validateAddrs() error {
	var errs []error
	taken := map[string]string{}
	for _, a := range []struct{ field, addr string }{
		{"grpc_addr", c.GRPCAddr}, {"http_addr", c.HTTPAddr},
		{"resp_addr", c.RESPAddr}, {"peer_addr", c.PeerAddr},
	} {
		host, port, err := splitAddr(a.addr)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %q is not host:port, such as 127.0.0.1:7400: %w", a.field, a.addr, err))
		case !c.AllowRemote && !isLoopback(host):
			errs = append(errs, fmt.Errorf("%s: %s can be reached from other machines and there is no authentication yet;"+
				" use a 127.0.0.1 address, or allow_remote (--allow-remote) where the network is trusted", a.field, a.addr))
		case port != 0 && taken[a.addr] != "":
			errs = append(errs, fmt.Errorf("%s: %s is the %s too", a.field, a.addr, taken[a.addr]))
		}
		taken[a.addr] = a.field
	}
	return errors.Join(errs...)
}

func splitAddr(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		var bad *net.AddrError
		if errors.As(err, &bad) {
			return "", 0, errors.New(bad.Err)
		}
		return "", 0, err
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("port %q is not 0 to 65535", text)
	}
	return host, port, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// The bounds of the configuration itself. The least message holds an edge with
// the largest properties; the most is what the peers of gRPC agree on as sane.
const (
	minMessageBytes = 64 << 10
	maxMessageBytes = 64 << 20
	maxStopTimeout  = 10 * time.Minute
)

func (c Config) validateTimes() error {
	var errs []error
	if c.StopTimeout < 100*time.Millisecond || c.StopTimeout > maxStopTimeout {
		errs = append(errs, fmt.Errorf("stop_timeout: %v (allowed: 100ms to %v)", c.StopTimeout, maxStopTimeout))
	}
	if c.SlowCall < 0 {
		errs = append(errs, fmt.Errorf("slow_call: %v (allowed: 0 or more)", c.SlowCall))
	}
	return errors.Join(errs...)
}

func (l Limits) validate() error {
	var errs []error
	if l.MaxMessageBytes < minMessageBytes || l.MaxMessageBytes > maxMessageBytes {
		errs = append(errs, fmt.Errorf("limits.max_message_bytes: %d (allowed: %d to %d)", l.MaxMessageBytes, minMessageBytes, maxMessageBytes))
	}
	if l.MaxConnectionCalls < 1 {
		errs = append(errs, errors.New("limits.max_connection_calls: 0 (allowed: 1 or more)"))
	}
	if l.MaxCalls < 1 {
		errs = append(errs, fmt.Errorf("limits.max_calls: %d (allowed: 1 or more)", l.MaxCalls))
	}
	if l.MaxCallBytes < l.MaxMessageBytes {
		errs = append(errs, fmt.Errorf("limits.max_call_bytes: %d (allowed: limits.max_message_bytes, %d, or more)", l.MaxCallBytes, l.MaxMessageBytes))
	}
	if l.MaxStreams < 1 {
		errs = append(errs, fmt.Errorf("limits.max_streams: %d (allowed: 1 or more)", l.MaxStreams))
	}
	if l.MaxCallTime < time.Millisecond {
		errs = append(errs, fmt.Errorf("limits.max_call_time: %v (allowed: 1ms or more)", l.MaxCallTime))
	}
	return errors.Join(errs...)
}
