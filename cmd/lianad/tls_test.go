package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/lianadb/liana/proto/liana/v1"
	"github.com/lianadb/liana/server/peer"
)

// authority certifies nodes.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a.key = a.newKey()
	a.sign("ca.pem", a.cert, a.key)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

// sign writes a certificate for a key.
func (a *authority) sign(file string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(file, "CERTIFICATE", der)
}

func (a *authority) write(file, kind string, der []byte) {
	a.t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(filepath.Join(a.dir, file), text, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// node returns the configuration file of a node that is certified.
func (a *authority) node(name string) string {
	a.t.Helper()
	a.issue(name, &x509.Certificate{DNSNames: []string{peer.NodeName}})
	return writeFile(a.t, "liana.yaml", fmt.Sprintf("cluster:\n  tls:\n    cert: %s\n    key: %s\n    ca: %s\n",
		a.file(name+".pem"), a.file(name+".key"), a.file("ca.pem")))
}

// issue writes a key and a certificate for it, <name>.key and <name>.pem.
func (a *authority) issue(name string, cert *x509.Certificate) {
	a.t.Helper()
	key := a.newKey()
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".key", "EC PRIVATE KEY", secret)
	cert.Subject.CommonName = name // or OpenSSL takes it for the authority's own
	cert.SerialNumber, cert.NotBefore, cert.NotAfter = big.NewInt(2), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	a.sign(name+".pem", cert, key)
}

// file is the path of one of its files.
func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// Three processes form a cluster whose connections to each other are encrypted and
// certified at both ends: Raft's, the transfers of states and the calls. A leader is killed,
// and its node comes back. One without a certificate, or of another authority, is not let
// in, and its peer address says nothing to it.
func TestAClusterWithTLSBetweenItsNodes(t *testing.T) {
	a := newAuthority(t)
	board, err := newSwitchboard()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(board.close)
	f := &fleet{t: t, board: board}
	confs := []string{a.node("one"), a.node("two"), a.node("three")}
	f.add("--replication", "3", "--config", confs[0])
	for _, conf := range confs[1:] {
		f.add("--join", f.places[0].peer, "--config", conf)
	}
	f.settled()
	for i := range uint64(30) {
		f.node(int(i%3)).add(i+1, i%5+1)
	}
	at := f.leaderOfMost()
	f.places[at].kill()
	rng := mathrand.New(mathrand.NewSource(1))
	for i := range uint64(30) {
		until(t, f, rng, func(ctx context.Context, d *daemon) error {
			_, err := d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: like(i+101, i%5+1)})
			return err
		})
	}
	f.places[at].start("--peer-addr", f.places[at].peer, "--config", confs[at])
	f.settled()
	for n := range uint64(5) {
		if got := f.node(at).countIn(n + 1); got != 12 {
			t.Errorf("note %d has %d likes, want 12", n+1, got)
		}
	}
	f.converged()

	for name, conf := range map[string]string{
		"without a certificate": writeFile(t, "plain.yaml", "cluster: {}\n"),
		"of another authority":  newAuthority(t).node("stranger"),
	} {
		p := launch(t, startArgs(filepath.Join(t.TempDir(), "data"), "--join", f.places[0].peer, "--config", conf)...)
		select {
		case line := <-p.lines:
			t.Errorf("a node %s says %q", name, line)
		case <-p.exited: // it gave up
		case <-time.After(5 * time.Second):
		}
	}
	if n := len(f.overview().GetNodes()); n != 3 {
		t.Errorf("the cluster has %d nodes", n)
	}
	if says := f.node(0).stderr.String(); !strings.Contains(says, "a connection was refused") {
		t.Errorf("the log of the node that was asked tells of no refusal:\n%s", says)
	}
	if _, err := f.node(0).admin.GetStatus(testCtx(t), &pb.GetStatusRequest{}); err != nil {
		t.Error(err)
	}
}
