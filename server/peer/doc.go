// Package peer is the port between the nodes of a cluster: Raft streams and the
// services of proto/peer/v1 behind one address, and the clients that call them. It
// decodes, calls and encodes; what a call means is the business of graph and kv.
//
// The first byte of a connection tells what it is: that of shard.HelloMagic a Raft
// stream, that of HTTP/2 ("PRI …") gRPC. With TLS all of it lies inside.
package peer
