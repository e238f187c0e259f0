// Package cluster makes a process a member of its cluster: it keeps the map of the
// catalog at hand, makes and removes replicas where the map wants them, and serves
// what nodes ask of each other for that (service Cluster of proto/peer/v1).
//
// The map says what is wanted, the configurations of the Raft groups what is; the
// node that leads the catalog compares the two (RULES F4) and makes one change after
// the other. Every change begins from what is seen, so whatever was under way when a
// node went down goes on from there.
package cluster
