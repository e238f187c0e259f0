package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/shard"
)

// authority certifies the nodes of a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir(), cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}}
	a.key, _ = a.certify("ca", a.cert, a.cert, nil)
	return a
}

// certify makes a key and a certificate for it, signed by key (nil: by itself), and
// writes both.
func (a *authority) certify(name string, cert, by *x509.Certificate, key *ecdsa.PrivateKey) (*ecdsa.PrivateKey, TLSFiles) {
	a.t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if key == nil {
		key = own
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, by, &own.PublicKey, key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		a.t.Fatal(err)
	}
	f := TLSFiles{
		Cert: filepath.Join(a.dir, name+".pem"), Key: filepath.Join(a.dir, name+".key"), CA: filepath.Join(a.dir, "ca.pem"),
	}
	for path, block := range map[string]*pem.Block{
		f.Cert: {Type: "CERTIFICATE", Bytes: der}, f.Key: {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return own, f
}

// files are those of one who is certified under a DNS name.
func (a *authority) files(file, dns string, expires time.Time) TLSFiles {
	_, f := a.certify(file, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{dns}, NotBefore: time.Now().Add(-time.Hour), NotAfter: expires,
	}, a.cert, a.key)
	return f
}

func mustConfig(t *testing.T, f TLSFiles) *tls.Config {
	t.Helper()
	c, err := f.Config()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOnlyNodesOfTheAuthorityComeIn(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	soon := time.Now().Add(time.Hour)
	node := mustConfig(t, ours.files("node", NodeName, soon))
	streams := make(chan string, 16)
	p, err := Listen("127.0.0.1:0", node, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	local := &echo{}
	p.Serve(Services{NodeID: "b", Local: local, Cluster: noCluster{}, Streams: func(c net.Conn) {
		defer c.Close()
		b, _ := io.ReadAll(c)
		streams <- string(b)
	}})
	t.Cleanup(p.Stop)

	client := mustConfig(t, ours.files("node", NodeName, soon)) // a client of the same authority:
	pair, err := tls.LoadX509KeyPair(func() (string, string) {
		f := ours.files("client", "some-client", soon)
		return f.Cert, f.Key
	}())
	if err != nil {
		t.Fatal(err)
	}
	client.Certificates = []tls.Certificate{pair}
	bare := client.Clone()
	bare.Certificates = nil
	for name, c := range map[string]struct {
		config *tls.Config
		in     bool
	}{
		"a node":                         {node, true},
		"plain text":                     {nil, false},
		"a node of another authority":    {mustConfig(t, other.files("node", NodeName, soon)), false},
		"a client of the same authority": {client, false},
		"one without a certificate":      {bare, false},
	} {
		t.Run(name, func(t *testing.T) {
			local.got = nil
			pool := NewPool(func(string) string { return p.Addr() }, nil, c.config)
			defer pool.Close()
			far, err := pool.Client("b")
			if err != nil {
				t.Fatal(err)
			}
			_, err = far.Deliver(testCtx(t), 3, []byte("x"))
			if c.in != (err == nil) || c.in != (local.got != nil) {
				t.Errorf("a call: %v; it arrived: %v", err, local.got != nil)
			}
			conn, err := pool.Dial(testCtx(t), "b")
			if err == nil {
				_, _ = conn.Write(append([]byte(shard.HelloMagic), "secret"...))
				if cw, ok := conn.(interface{ CloseWrite() error }); ok {
					_ = cw.CloseWrite()
				}
				_, _ = io.ReadAll(conn)
				_ = conn.Close()
			}
			select {
			case got := <-streams:
				if !c.in || !strings.HasSuffix(got, "secret") {
					t.Errorf("a stream arrived: %q", got)
				}
			case <-time.After(200 * time.Millisecond):
				if c.in {
					t.Error("no stream arrived")
				}
			}
		})
	}

	// And nobody is talked to who is not a node of the authority.
	foreign, _ := serveWith(t, mustConfig(t, other.files("far", NodeName, soon)))
	pool := NewPool(func(string) string { return foreign.Addr() }, nil, node)
	defer pool.Close()
	far, err := pool.Client("b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := far.Deliver(testCtx(t), 3, []byte("x")); !errors.Is(err, graph.ErrUnreachable) {
		t.Errorf("a foreign node was called: %v", err)
	}
}

func serveWith(t *testing.T, config *tls.Config) (*Port, *echo) {
	t.Helper()
	p, err := Listen("127.0.0.1:0", config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	local := &echo{}
	p.Serve(Services{NodeID: "b", Local: local, Cluster: noCluster{}, Streams: func(c net.Conn) { _ = c.Close() }})
	t.Cleanup(p.Stop)
	return p, local
}

func TestFilesThatCannotServeAreNamed(t *testing.T) {
	a := newAuthority(t)
	good := a.files("good", NodeName, time.Now().Add(time.Hour))
	if _, err := good.Config(); err != nil {
		t.Fatal(err)
	}
	client := a.files("client", "some-client", time.Now().Add(time.Hour))
	for want, f := range map[string]TLSFiles{
		"absent.pem":               {Cert: filepath.Join(a.dir, "absent.pem"), Key: good.Key, CA: good.CA},
		"private key does not":     {Cert: good.Cert, Key: client.Key, CA: good.CA},
		"other nodes would refuse": client,
		"good.key holds no":        {Cert: good.Cert, Key: good.Key, CA: good.Key},
		"nothing: no such file":    {Cert: good.Cert, Key: good.Key, CA: "nothing"},
	} {
		if _, err := f.Config(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
