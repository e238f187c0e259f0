package catalog

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

var _ shard.Machine = (*Machine)(nil)

// A replica that is sent a snapshot of another has that one's map, and none of its own rows.
func TestASnapshotReplacesTheMap(t *testing.T) {
	h, own := newHistory(t, rand.New(rand.NewSource(1))), newHistory(t, rand.New(rand.NewSource(2)))
	for range 50 {
		h.step()
		own.step()
	}
	for h.machine.Board().Map().Version <= own.machine.Board().Map().Version {
		h.step()
	}
	parts := own.machine.Parts()
	rep, err := own.store.Replace(parts)
	if err != nil {
		t.Fatal(err)
	}
	defer rep.Close()
	each(t, h.store, func(k, v []byte) {
		if bytes.Compare(k, parts.Data.Lower) < 0 || bytes.Compare(k, parts.Data.Upper) >= 0 {
			t.Errorf("row %x lies outside of the parts", k)
		}
		if err := rep.Set(k, v); err != nil {
			t.Fatal(err)
		}
	})
	if err := rep.Commit([]kv.Row{{Key: []byte{0xfe}, Value: []byte{1}}}); err != nil {
		t.Fatal(err)
	}
	if err := own.machine.Restore(); err != nil {
		t.Fatal(err)
	}
	own.machine.Publish(1)
	mustEqual(t, own.machine.Board().Map().Encode(), h.machine.Board().Map().Encode())
	own.step() // and goes on
}
