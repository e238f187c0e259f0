package pebblekv

import (
	"time"

	"github.com/lianadb/liana/kv"
)

// Stats implements kv.Store. It takes Pebble's main lock for some microseconds:
// for metrics, not for each request.
func (s *Store) Stats() kv.Stats {
	if s.gate.enter() != nil {
		return kv.Stats{}
	}
	defer s.gate.leave()
	m := s.db.Metrics()
	total := m.Total()
	st := kv.Stats{
		DiskBytes:         m.DiskSpaceUsage(),
		MemTableBytes:     m.MemTable.Size,
		BlockCacheBytes:   m.BlockCache.Size,
		BlockCacheHits:    m.BlockCache.Hits,
		BlockCacheMisses:  m.BlockCache.Misses,
		Compactions:       m.Compact.Count,
		CompactionDebt:    m.Compact.EstimatedDebt,
		Flushes:           m.Flush.Count,
		L0Files:           m.Levels[0].TablesCount,
		ReadAmplification: m.ReadAmp(),
		WriteStalls:       s.events.stalls.Load(),
		WALBytesWritten:   m.WAL.BytesWritten,
		BytesIn:           m.WAL.BytesIn,
		BytesCompacted:    total.TableBytesCompacted,
		BytesFlushed:      total.TableBytesFlushed,
		TombstoneCount:    m.Keys.TombstoneCount,
		OpenIterators:     s.iters.Load(),
		BackgroundErrors:  s.events.background.Load(),
		DiskFreeBytes:     s.diskFree(),
	}
	s.snapMu.Lock()
	defer s.snapMu.Unlock()
	st.OpenSnapshots = len(s.snaps)
	for n := range s.snaps {
		st.OldestSnapshotSecs = max(st.OldestSnapshotSecs, int64(time.Since(n.at).Seconds()))
	}
	return st
}

func (s *Store) diskFree() uint64 {
	usage, err := s.fs.GetDiskUsage(s.dir)
	if err != nil {
		return 0
	}
	return usage.AvailBytes
}
