package server

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
)

// emitter sends single samples to a collector's channel.
type emitter struct {
	ch chan<- prometheus.Metric
}

func (e emitter) gauge(name, help string, v float64, labels ...string) {
	e.send(prometheus.GaugeValue, name, help, v, labels)
}

func (e emitter) counter(name, help string, v float64, labels ...string) {
	e.send(prometheus.CounterValue, name, help, v, labels)
}

// send takes labels as pairs of name and value.
func (e emitter) send(kind prometheus.ValueType, name, help string, v float64, labels []string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	e.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, v, values...)
}

func (e emitter) shard(st graph.ShardStatus) {
	id := strconv.FormatUint(uint64(st.ID), 10)
	e.gauge("liana_shard_leader", "1 where this node leads the shard.", flag(st.Leader), "shard", id)
	e.gauge("liana_shard_fault", "1 where the shard has failed on this node.", flag(st.Fault != ""), "shard", id)
	e.gauge("liana_shard_sick", "1 where the disk under the shard is sick: slow, or a call to it hangs.", flag(st.Raft.Sick != ""), "shard", id)
	e.counter("liana_shard_gave_way_total", "Leaderships handed over because the disk is sick.", float64(st.Raft.GaveWay), "shard", id)
	e.counter("liana_shard_applied", "Index of the last applied log entry.", float64(st.Applied), "shard", id)
	e.counter("liana_shard_position", "Number of the last change.", float64(st.Position), "shard", id)
	e.gauge("liana_shard_outbox_pending", "Changes that other shards have not taken yet.", float64(st.OutboxPending), "shard", id)
}

func (e emitter) cache(f CacheFigure) {
	labels := []string{"tier", f.Tier}
	if f.Reason != "" {
		labels = append(labels, "reason", f.Reason)
	}
	kind := prometheus.GaugeValue
	if strings.HasSuffix(f.Name, "_total") {
		kind = prometheus.CounterValue
	}
	e.send(kind, "liana_cache_"+f.Name, f.Help, f.Value, labels)
}

func (e emitter) store(name string, s kv.Stats) {
	gauge := func(metric, help string, v float64) { e.gauge("liana_store_"+metric, help, v, "store", name) }
	counter := func(metric, help string, v float64) { e.counter("liana_store_"+metric, help, v, "store", name) }
	gauge("disk_bytes", "Size of live tables and logs.", float64(s.DiskBytes))
	gauge("memtable_bytes", "Memory of tables not yet flushed.", float64(s.MemTableBytes))
	gauge("block_cache_bytes", "Memory of the block cache.", float64(s.BlockCacheBytes))
	counter("block_cache_hits_total", "Reads answered by the block cache.", float64(s.BlockCacheHits))
	counter("block_cache_misses_total", "Reads that went to a file.", float64(s.BlockCacheMisses))
	counter("compactions_total", "Compactions.", float64(s.Compactions))
	gauge("compaction_debt_bytes", "Bytes that compactions still have to rewrite.", float64(s.CompactionDebt))
	counter("flushes_total", "Flushes.", float64(s.Flushes))
	gauge("l0_files", "Files in level 0.", float64(s.L0Files))
	gauge("read_amplification", "Levels that a read looks at.", float64(s.ReadAmplification))
	counter("write_stalls_total", "Times that writes had to wait for compactions.", float64(s.WriteStalls))
	counter("wal_written_bytes_total", "Bytes written to the write-ahead log.", float64(s.WALBytesWritten))
	counter("written_bytes_total", "Logical bytes written.", float64(s.BytesIn))
	counter("compacted_bytes_total", "Bytes written by compactions.", float64(s.BytesCompacted))
	counter("flushed_bytes_total", "Bytes written by flushes.", float64(s.BytesFlushed))
	gauge("open_snapshots", "Open snapshots.", float64(s.OpenSnapshots))
	gauge("oldest_snapshot_seconds", "Age of the oldest open snapshot.", float64(s.OldestSnapshotSecs))
	gauge("open_iterators", "Open iterators.", float64(s.OpenIterators))
	gauge("tombstones", "Deletion marks in the tables.", float64(s.TombstoneCount))
	counter("background_errors_total", "Failed flushes and compactions.", float64(s.BackgroundErrors))
}
