package shard

import (
	"errors"
	"sync"
	"testing"
)

func TestProposeAnswersAppliesAndSurvivesRestart(t *testing.T) {
	r := memRig(t, nil).start(2)
	for i := int64(1); i <= 20; i++ {
		if got := r.add(1, "a"); got != i {
			t.Fatalf("answer %d, want %d", got, i)
		}
	}
	r.add(2, "a")
	if got := r.machines[1].get("a"); got != 20 {
		t.Fatalf("published %d, want 20: an answer must be visible", got)
	}
	r.close()
	r.start(2)
	if got := r.add(1, "a"); got != 21 {
		t.Fatalf("after restart %d, want 21", got)
	}
	if got := r.add(2, "a"); got != 2 {
		t.Fatalf("shard 2 after restart %d, want 2", got)
	}
}

func TestConcurrentCommandsShareEntriesAndEachHasItsAnswer(t *testing.T) {
	r := memRig(t, nil).start(1)
	const callers, each = 64, 50
	var mu sync.Mutex
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				v, err := r.shards[1].Propose(ctx(t), []byte("a"))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[v.(int64)] {
					t.Errorf("answer %d given twice", v)
				}
				seen[v.(int64)] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	st := r.shards[1].Status()
	if len(seen) != callers*each || st.Commands != callers*each {
		t.Fatalf("%d answers, %d commands, want %d", len(seen), st.Commands, callers*each)
	}
	if st.Entries >= st.Commands {
		t.Errorf("%d commands took %d entries: nothing was gathered", st.Commands, st.Entries)
	}
	if err := r.shards[1].Confirm(ctx(t)); err != nil {
		t.Error(err)
	}
}

func TestCloseRefusesWithItsOwnError(t *testing.T) {
	r := memRig(t, nil).start(1)
	s := r.shards[1]
	r.close()
	if _, err := s.Propose(ctx(t), []byte("a")); !errors.Is(err, ErrStopped) {
		t.Errorf("Propose after Close: %v", err)
	}
	if err := s.Confirm(ctx(t)); !errors.Is(err, ErrStopped) {
		t.Errorf("Confirm after Close: %v", err)
	}
	if got := r.machines[1].leads; len(got) != 2 || !got[0] || got[1] {
		t.Errorf("Lead was called with %v, want [true false]", got)
	}
}
