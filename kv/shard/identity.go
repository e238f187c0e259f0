package shard

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/lianadb/liana/kv"
)

// maxNodeID is the size of the longest node id, in bytes.
const maxNodeID = 64

// maxClusterID is the size of the longest cluster id, in bytes.
const maxClusterID = 64

const boltStampKey = "stamp"

// identify returns the stamp of a node's three stores and founds the node
// where all three are new. The bolt file is stamped last: with its stamp the
// founding is complete, without it nothing but stamps can be there.
func identify(state, log kv.Store, bolt *raftboltdb.BoltStore, wanted string) (stamp, error) {
	b, err := bolt.Get([]byte(boltStampKey))
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return found(state, log, bolt, wanted)
	}
	if err != nil {
		return stamp{}, fmt.Errorf("stable store: stamp: %w", err)
	}
	own, err := decodeStamp(b)
	if err != nil {
		return stamp{}, fmt.Errorf("stable store: %w", err)
	}
	if wanted != "" && wanted != own.nodeID {
		return stamp{}, fmt.Errorf("%w: the data belongs to node %q, this node is configured as %q: "+
			"start with the right node id or another data directory", ErrForeign, own.nodeID, wanted)
	}
	if err := checkStamp("state", state, stateStampKey(), own); err != nil {
		return stamp{}, err
	}
	return own, checkStamp("log", log, logStampKey(), own)
}

func checkStamp(name string, store kv.Store, key []byte, own stamp) error {
	b, err := store.Get(nil, key)
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return fmt.Errorf("%w: the %s store carries no stamp, the stable store that of node %q (%x): "+
			"bring the %s store back, or remove all three and let the node join anew",
			ErrForeign, name, own.nodeID, own.incarnation, name)
	case err != nil:
		return fmt.Errorf("%s store: stamp: %w", name, err)
	}
	got, err := decodeStamp(b)
	if err != nil {
		return fmt.Errorf("%s store: %w", name, err)
	}
	if got != own {
		return fmt.Errorf("%w: the %s store is of node %q (%x), the stable store of node %q (%x): "+
			"bring the stores of one node together, or remove all three and let the node join anew",
			ErrForeign, name, got.nodeID, got.incarnation, own.nodeID, own.incarnation)
	}
	return nil
}

func found(state, log kv.Store, bolt *raftboltdb.BoltStore, nodeID string) (stamp, error) {
	for _, s := range []struct {
		name  string
		store kv.Store
		key   []byte
	}{{"state", state, stateStampKey()}, {"log", log, logStampKey()}} {
		fresh, err := holdsOnly(s.store, s.key)
		if err != nil {
			return stamp{}, fmt.Errorf("%s store: %w", s.name, err)
		}
		if !fresh {
			return stamp{}, fmt.Errorf("%w: the %s store holds data, but the stable store carries no stamp: "+
				"bring the stable store back, or remove all three and let the node join anew", ErrForeign, s.name)
		}
	}
	own := stamp{nodeID: nodeID, incarnation: [8]byte(randomBytes())}
	if own.nodeID == "" {
		own.nodeID = hex.EncodeToString(randomBytes())
	}
	if err := setSync(state, stateStampKey(), own.encode()); err != nil {
		return stamp{}, fmt.Errorf("state store: stamp: %w", err)
	}
	if err := setSync(log, logStampKey(), own.encode()); err != nil {
		return stamp{}, fmt.Errorf("log store: stamp: %w", err)
	}
	if err := bolt.Set([]byte(boltStampKey), own.encode()); err != nil {
		return stamp{}, fmt.Errorf("stable store: stamp: %w", err)
	}
	return own, nil
}

// replicaID is Server.ID and Server.Address of a replica. A replica made anew
// has another number, so nobody takes it for the one that was lost.
func replicaID(nodeID string, number uint64) string {
	return fmt.Sprintf("%s-%016x", nodeID, number)
}

func randomNumber() uint64 { return binary.BigEndian.Uint64(randomBytes()) }

func randomBytes() []byte {
	b := make([]byte, 8)
	rand.Read(b) // never fails
	return b
}

func setSync(store kv.Store, key, value []byte) error {
	b := store.NewBatch()
	defer b.Close()
	if err := b.Set(key, value); err != nil {
		return err
	}
	return b.Commit(kv.Sync)
}
