package main

import (
	"time"

	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/kv/pebblekv"
	"github.com/lianadb/liana/kv/shard"
	"github.com/lianadb/liana/server/peer"
)

// host is what a node takes from the computer that it runs on. The zero value is the
// computer as it is. The tests put one with faults in its place: no program that is
// built for use has a way to ask for them.
type host struct {
	clock shard.Clock
	fs    pebblekv.FS
	wire  peer.Wire // to other nodes, and to Redis
	level uint32    // of the program, where it is to be taken for an older or newer one
}

// featureLevel is what the program can read.
func (h host) featureLevel() uint32 {
	if h.level != 0 {
		return h.level
	}
	return catalog.ThisLevel
}

// now is the wall clock; nil: the computer's.
func (h host) now() func() time.Time {
	if h.clock == nil {
		return nil
	}
	return func() time.Time {
		wall, _ := h.clock()
		return wall
	}
}
