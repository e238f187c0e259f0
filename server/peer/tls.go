package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// NodeName is the DNS name that the certificate of every node must hold. A certificate
// says that its owner is a node, not where it is reached: addresses change, and one that
// the same authority gave to a client opens no peer port.
const NodeName = "liana-node"

// TLSFiles are the files of a node's certificate, all PEM.
type TLSFiles struct{ Cert, Key, CA string }

// Config reads the files. Both ends of every connection show a certificate of CA with
// NodeName in it, and refuse others before they read anything.
func (f TLSFiles) Config() (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	if err := own.Leaf.VerifyHostname(NodeName); err != nil {
		return nil, fmt.Errorf("certificate %s: other nodes would refuse it: %w", f.Cert, err)
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, err
	}
	ca := x509.NewCertPool()
	if !ca.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", f.CA)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{own},
		ServerName:   NodeName,
		RootCAs:      ca,
		ClientCAs:    ca,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("the other end shows no certificate")
			}
			return s.PeerCertificates[0].VerifyHostname(NodeName)
		},
	}, nil
}
