package catalog

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// group is the catalog as it runs on a node.
type group struct {
	node    *shard.Node
	shard   *shard.Shard
	machine *Machine
}

func startGroup(t *testing.T, state, log kv.Store, stable string) group {
	t.Helper()
	node, err := shard.OpenNode(shard.NodeConfig{State: state, Log: log, StablePath: stable, NodeID: "a", Heartbeat: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	g := group{node: node, machine: mustMachine(t, state)}
	if g.shard, err = node.StartShard(shard.ShardConfig{ID: CatalogShard, Machine: g.machine}); err != nil {
		t.Fatal(errors.Join(err, node.Close()))
	}
	return g
}

// propose proposes an edit, again while the replica does not lead yet.
func (g group) propose(t *testing.T, expected uint64, e Edit) Result {
	t.Helper()
	for {
		r, err := g.shard.Propose(context.Background(), mustCommand(t, expected, e))
		if err == nil {
			return r.(Result)
		}
		if !errors.Is(err, shard.ErrNotLeader) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestTheCatalogRunsAsAGroup(t *testing.T) {
	state, log, stable := kv.NewMem(nil), kv.NewMem(nil), filepath.Join(t.TempDir(), "raft.db")
	g := startGroup(t, state, log, stable)
	if r := g.propose(t, 0, SetReplication{Copies: 2}); !errors.Is(r.Err, ErrUnfounded) {
		t.Errorf("%+v", r)
	}
	if r := g.propose(t, 0, Found{Map: firstOf(sample())}); r.Err != nil || !r.Changed || r.Version != 1 {
		t.Errorf("%+v", r)
	}
	newer := g.machine.Board().Newer(1)
	if r := g.propose(t, 1, BeginMove{Shard: 0, From: "a", To: "d"}); r.Err != nil || r.Version != 2 {
		t.Errorf("%+v", r)
	}
	<-newer
	if r := g.propose(t, 1, CancelMove{Shard: 0}); !errors.Is(r.Err, ErrStale) || r.Version != 2 {
		t.Errorf("%+v", r)
	}
	want := g.machine.Board().Map()
	if want.Shard(0).Moving == nil || !g.machine.Leading() {
		t.Errorf("%+v", want.Shard(0))
	}
	// Loss of power: what was not flushed comes back from the log.
	state2, log2 := state.AfterPowerLoss(), log.AfterPowerLoss()
	for _, err := range []error{g.node.Close(), state.Close(), log.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	g = startGroup(t, state2, log2, stable)
	if r := g.propose(t, AnyVersion, BeginMove{Shard: 0, From: "a", To: "d"}); r.Changed || r.Version != 2 {
		t.Errorf("%+v", r)
	}
	mustEqual(t, g.machine.Board().Map(), want)
	for _, err := range []error{g.node.Close(), state2.Close(), log2.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
}
