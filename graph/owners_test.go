package graph

import (
	"math/rand"
	"reflect"
	"slices"
	"testing"

	"github.com/lianadb/liana/kv"
)

// Whatever order claims of a history of splits come in, the owners are the same.
func TestClaimsMergeInAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for range 50 {
		now := foundingOwners(1 + rng.Intn(6))
		founding := now
		next := uint32(len(now))
		var told [][]Claim
		for range 12 {
			c := now[rng.Intn(len(now))]
			if c.First == c.Last {
				continue
			}
			at := c.First + 1 + Slot(rng.Intn(int(c.Last-c.First)))
			halves := []Claim{
				{First: c.First, Last: at - 1, Shard: c.Shard, Gen: c.Gen + 1},
				{First: at, Last: c.Last, Shard: next, Gen: c.Gen + 1},
			}
			next++
			now = now.merge(halves)
			told = append(told, halves[:1], halves[1:], now)
		}
		got := founding
		for _, i := range rng.Perm(len(told)) {
			got = got.merge(told[i])
		}
		if !reflect.DeepEqual(got, now) {
			t.Fatalf("merged in another order: %v, want %v", got, now)
		}
		back, err := decodeOwners(now.encode())
		must(t, err)
		if !slices.Equal(back, now) {
			t.Fatalf("decoded: %v, want %v", back, now)
		}
		for s := range Slot(NumSlots) {
			if c := now.of(s); !c.owns(s) {
				t.Fatalf("slot %d is of %v", s, c)
			}
		}
	}
}

// What founds a cluster gives each slot to the shard whose range holds it.
func TestFoundingOwnersCoverAllSlots(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 7, 64, 100, NumSlots} {
		o, next := foundingOwners(n), 0
		for _, c := range o {
			if int(c.First) != next || c.Last < c.First {
				t.Fatalf("%d shards: %v begins elsewhere than at %d", n, c, next)
			}
			next = int(c.Last) + 1
		}
		if next != NumSlots {
			t.Fatalf("%d shards: slots from %d on have none", n, next)
		}
	}
}

// A replica that joins knows nothing yet, and takes the rows of its shard when it is sent
// the state: those of its vertices too.
func TestANewReplicaHasRoomForTheState(t *testing.T) {
	full := newTestMachine(t, 1, 2)
	defer full.Close()
	fresh, err := openMachine(MachineConfig{ID: 1, Founding: 2, Store: kv.NewMem(Merger())}, newPageCache(1<<20))
	must(t, err)
	defer fresh.Close()
	if got, err := fresh.Replaces(full.Parts()); err != nil || !reflect.DeepEqual(got, full.Parts()) {
		t.Errorf("a new replica has room for %x, %v, its shard is %x", got, err, full.Parts())
	}
}
