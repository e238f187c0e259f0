package shard

import (
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

func testFSM(t testing.TB, store kv.Store) (*fsm, *sums) {
	t.Helper()
	m := newSums(t, store, 1)
	s, err := newFSM(1, store, m, newFault())
	if err != nil {
		t.Fatal(err)
	}
	return s, m
}

func commandLog(index, term uint64, commands ...string) *raft.Log {
	e := logEntry{kind: kindCommands, term: term, wall: int64(1000 * index), inTerm: int64(10 * index)}
	for _, c := range commands {
		e.commands = append(e.commands, []byte(c))
	}
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: e.encode()}
}

func configLog(index, term uint64, servers ...string) *raft.Log {
	var c raft.Configuration
	for _, s := range servers {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(s), Address: raft.ServerAddress(s)})
	}
	return &raft.Log{Index: index, Term: term, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(c)}
}

func openLog(index, term uint64, wall int64) *raft.Log {
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: logEntry{kind: kindOpenTerm, wall: wall}.encode()}
}

func TestFSMAppliesABatchAndItsPositionTogether(t *testing.T) {
	store := kv.NewMem(nil)
	s, m := testFSM(t, store)
	got := s.ApplyBatch([]*raft.Log{configLog(1, 1, "x"), openLog(3, 2, 500), commandLog(4, 2, "a", "b", "a")})
	if r := got[2].(response); !reflect.DeepEqual(r.results, []any{int64(1), int64(1), int64(2)}) || r.err != nil {
		t.Errorf("response %+v", r)
	}
	p, err := readPosition(store.Get, 1)
	if err != nil || p.index != 4 || p.term != 2 || p.now != 4000 || p.configurationIndex != 1 || len(p.configuration) == 0 {
		t.Errorf("applied row %+v, %v", p, err)
	}
	if m.at != 4 || m.get("a") != 2 {
		t.Errorf("published %d at %d", m.get("a"), m.at)
	}
}

// RULES 1: with batching, Raft never hands a configuration to a
// ConfigurationStore. After a truncation and a restart it would be gone.
func TestRuleA2_1_TheConfigurationSurvivesTruncationAndRestart(t *testing.T) {
	store := kv.NewMem(nil)
	s, _ := testFSM(t, store)
	s.ApplyBatch([]*raft.Log{configLog(1, 1, "x"), commandLog(2, 1, "a")})
	s.ApplyBatch([]*raft.Log{configLog(3, 2, "x", "y"), commandLog(4, 2, "a")})
	s, _ = testFSM(t, store)
	metas, err := snapshotsOf(s).List()
	if err != nil || len(metas) != 1 {
		t.Fatal(metas, err)
	}
	m := metas[0]
	if m.Index != 4 || m.Term != 2 || m.ConfigurationIndex != 3 || len(m.Configuration.Servers) != 2 || m.Version != 1 {
		t.Errorf("snapshot %+v", m)
	}
}

// RULES 14: a snapshot at 0 would make Raft refuse to bootstrap.
func TestRule14_TheListOfSnapshotsIsEmptyBeforeTheFirstEntry(t *testing.T) {
	s, _ := testFSM(t, kv.NewMem(nil))
	if metas, err := snapshotsOf(s).List(); err != nil || len(metas) != 0 {
		t.Errorf("%v, %v", metas, err)
	}
}

func TestRuleA2_EntriesAppliedBeforeAreSkipped(t *testing.T) {
	store := kv.NewMem(nil)
	s, _ := testFSM(t, store)
	logs := []*raft.Log{configLog(1, 1, "x"), commandLog(2, 1, "a"), commandLog(5, 1, "a")}
	s.ApplyBatch(logs)
	s, m := testFSM(t, store)
	s.ApplyBatch(logs)
	s.ApplyBatch([]*raft.Log{commandLog(5, 1, "a"), commandLog(6, 1, "a")})
	if got := m.get("a"); got != 3 {
		t.Errorf("a = %d, want 3", got)
	}
}

func TestRuleA2_AFaultAnswersEverythingAfterItAndDoesNotAdvance(t *testing.T) {
	for name, bad := range map[string]*raft.Log{
		"machine refuses":   commandLog(3, 1, "a", "corrupt"),
		"machine panics":    commandLog(3, 1, "panic"),
		"entry in ruin":     {Index: 3, Term: 1, Type: raft.LogCommand, Data: []byte{9}},
		"type unknown":      {Index: 3, Term: 1, Type: raft.LogBarrier},
		"configuration bad": {Index: 3, Term: 1, Type: raft.LogConfiguration, Data: []byte{0xc1}},
	} {
		t.Run(name, func(t *testing.T) {
			store := kv.NewMem(nil)
			s, m := testFSM(t, store)
			s.ApplyBatch([]*raft.Log{commandLog(1, 1, "a")})
			got := s.ApplyBatch([]*raft.Log{commandLog(2, 1, "a"), bad, commandLog(4, 1, "a")})
			got = append(got, s.ApplyBatch([]*raft.Log{commandLog(5, 1, "a")})...)
			for i, r := range got {
				if err := r.(response).err; !errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), "entry 3") && !strings.Contains(err.Error(), "bug") {
					t.Errorf("response %d: %v", i, err)
				}
			}
			if p, err := readPosition(store.Get, 1); err != nil || p.index != 1 || s.reached.Load() != 1 {
				t.Errorf("applied row at %d, reached %d, %v; want 1", p.index, s.reached.Load(), err)
			}
			if s.fault.get() == nil || m.get("a") != 1 {
				t.Errorf("fault %v, a = %d", s.fault.get(), m.get("a"))
			}
			// Nothing of the failed batch is in the store: a restart applies it again.
			if _, m := testFSM(t, store); m.values["a"] != 1 {
				t.Errorf("after restart a = %d", m.values["a"])
			}
		})
	}
}

func TestAFailedCommitIsAFaultAndPublishesNothing(t *testing.T) {
	store := &faulty{Store: kv.NewMem(nil), prefix: []byte{stateSpace}}
	s, m := testFSM(t, store)
	store.set(func(f *faulty) { f.setErr = errors.New("disk") })
	r := s.ApplyBatch([]*raft.Log{commandLog(1, 1, "a")})[0].(response)
	if !errors.Is(r.err, ErrOutcomeUnknown) || m.get("a") != 0 {
		t.Errorf("%v, a = %d", r.err, m.get("a"))
	}
}

func TestRuleE1_ClocksNeverRunBackwardsAndForeignTermsDoNotCount(t *testing.T) {
	s, m := testFSM(t, kv.NewMem(nil))
	entry := func(index, term, stampTerm uint64, wall, inTerm int64) *raft.Log {
		e := logEntry{kind: kindTick, term: stampTerm, wall: wall, inTerm: inTerm}
		return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: e.encode()}
	}
	s.ApplyBatch([]*raft.Log{
		openLog(1, 1, 1000), entry(2, 1, 1, 1500, 500), entry(3, 1, 1, 1400, 400),
		openLog(4, 2, 900), entry(5, 2, 2, 1600, 100),
		entry(6, 2, 1, 1700, 900_000), // stamped in term 1, appended in term 2
		entry(7, 2, 2, 1800, 300),
	})
	want := [][2]int64{{1000, 0}, {1500, 500}, {1500, 500}, {1500, 500}, {1600, 600}, {1700, 600}, {1800, 800}}
	for i, e := range m.trail {
		if e.Now != want[i][0] || e.Elapsed != want[i][1] {
			t.Errorf("entry %d: log time %d, dedupe clock %d, want %v", e.Index, e.Now, e.Elapsed, want[i])
		}
	}
}

// The same log gives the same state whatever Raft's grouping, however often the
// state is cut, and wherever the node is killed or loses power.
func TestTheStateDependsOnTheLogAlone(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var logs []*raft.Log
	for i := uint64(1); i <= 400; i++ {
		term := i/50 + 1
		switch {
		case i%50 == 1:
			logs = append(logs, openLog(i, term, rng.Int64N(1_000_000)))
		case rng.IntN(20) == 0:
			logs = append(logs, configLog(i, term, names(1+rng.IntN(3))...))
		case rng.IntN(20) == 0: // an entry of Raft that never comes here
		default:
			logs = append(logs, commandLog(i, term, names(1+rng.IntN(5))...))
		}
	}
	logs = append(logs, commandLog(401, 9, "end"))
	plain := kv.NewMem(nil)
	s, want := testFSM(t, plain)
	for _, l := range logs {
		s.ApplyBatch([]*raft.Log{l})
	}
	row, _ := plain.Get(nil, stateRowKey(stateApplied, 1))

	for round := range 60 {
		store := kv.NewMem(nil)
		s, m := testFSM(t, store)
		s.policy = cutPolicy{entries: 1 + rng.IntN(40)}
		for next := 0; next < len(logs); {
			n := min(1+rng.IntN(60), len(logs)-next)
			s.ApplyBatch(logs[next : next+n])
			next += n
			if rng.IntN(3) > 0 || next == len(logs) {
				continue
			}
			switch rng.IntN(4) {
			case 0:
				store = store.AfterKill()
			case 1:
				store.Flush()
			case 2:
				store.Flush()
				fallthrough
			default:
				store = store.AfterPowerLoss()
			}
			policy := s.policy
			s, m = testFSM(t, store)
			s.policy = policy
			next = 0 // Raft may begin anywhere up to the applied row
			for logs[next].Index <= s.applied.index && rng.IntN(100) > 0 {
				next++
			}
		}
		if err := s.cutNow(); err != nil {
			t.Fatal(err)
		}
		got, err := store.Get(nil, stateRowKey(stateApplied, 1))
		if err != nil || !reflect.DeepEqual(got, row) || !maps.Equal(m.values, want.values) {
			t.Fatalf("seed %d, round %d: state differs\n got %v %x\nwant %v %x", seed, round, m.values, got, want.values, row)
		}
	}
}
