package shard

import (
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"
)

// What is kept in memory of a log is what the log holds, whatever is added and deleted.
func TestRecentEntriesAgreeWithTheLog(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var r recentLog
		model := map[uint64]uint64{} // index → term
		next, term := uint64(1), uint64(1)
		for step := range 400 {
			switch k := rng.IntN(10); {
			case k < 7:
				var logs []*raft.Log
				for range rng.IntN(5) + 1 {
					logs = append(logs, &raft.Log{Index: next, Term: term, Data: make([]byte, rng.IntN(20<<10))})
					model[next] = term
					next++
				}
				r.add(logs)
			case k == 7 && next > 1: // a tail that another leader replaces
				from := next - 1 - min(next-2, uint64(rng.IntN(80)))
				r.forget(from, next-1)
				for i := from; i < next; i++ {
					delete(model, i)
				}
				next, term = from, term+1
			case k == 8 && next > 1: // truncation
				to := uint64(rng.IntN(int(next)))
				r.forget(1, to)
				for i := uint64(1); i <= to; i++ {
					delete(model, i)
				}
			case k == 9 && rng.IntN(10) == 0: // an install behind the log
				r.forget(1, next)
				clear(model)
				next += uint64(rng.IntN(100))
			}
			found, bytes := 0, 0
			for i := uint64(0); i <= next; i++ {
				var log raft.Log
				if r.get(i, &log) {
					found++
					bytes += len(log.Data)
					if want, ok := model[i]; !ok || want != log.Term || log.Index != i {
						t.Fatalf("seed %d, step %d: entry %d is %+v, want term %d", seed, step, i, log, want)
					}
				}
			}
			if found != len(r.entries) || bytes != r.bytes || found > recentEntries || bytes > recentBytes {
				t.Fatalf("seed %d, step %d: %d of %d entries found, %d of %d bytes", seed, step, found, len(r.entries), bytes, r.bytes)
			}
		}
	}
}
