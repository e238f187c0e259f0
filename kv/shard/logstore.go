package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// logStore is the raft.LogStore of one replica: a span of the node's log
// store. Commits are synced; those of all groups share the engine's fsync.
type logStore struct {
	shard  uint32
	store  kv.Store
	prefix []byte
	total  *atomic.Int64 // bytes of all logs of the node
	grown  func()        // called, outside the lock, after the log has grown

	mu sync.Mutex
	// first and last are 0 when the log is empty. Invariant: every index
	// between them is stored.
	first, last uint64
	size        logSize
	recent      recentLog
}

var _ raft.LogStore = (*logStore)(nil)

func openLogStore(store kv.Store, shard uint32, replica uint64, total *atomic.Int64, grown func()) (*logStore, error) {
	l := &logStore{shard: shard, store: store, prefix: logPrefix(shard, replica), total: total, grown: grown}
	span := kv.PrefixSpan(l.prefix)
	it, err := store.NewIter(span)
	if err != nil {
		return nil, l.fail("open", err)
	}
	if it.First() {
		l.first, err = l.index(it.Key())
	}
	if err == nil && it.Last() {
		l.last, err = l.index(it.Key())
	}
	if err := errors.Join(err, it.Error(), it.Close()); err != nil {
		return nil, l.fail("open", err)
	}
	disk, err := store.EstimateDiskUsage(span)
	if err != nil {
		return nil, l.fail("size", err)
	}
	l.total.Add(l.size.add(l.last, int64(disk)))
	l.size.mark(l.last)
	return l, nil
}

func (l *logStore) fail(what string, err error) error {
	return fmt.Errorf("shard %d: log: %s: %w", l.shard, what, err)
}

func (l *logStore) key(index uint64) []byte {
	return binary.BigEndian.AppendUint64(l.prefix[:len(l.prefix):len(l.prefix)], index)
}

func (l *logStore) index(key []byte) (uint64, error) {
	if len(key) != len(l.prefix)+8 {
		return 0, kv.Corruptionf("key %x is not an entry's", key)
	}
	return binary.BigEndian.Uint64(key[len(l.prefix):]), nil
}

// FirstIndex returns the index of the first entry, 0 if there is none.
func (l *logStore) FirstIndex() (uint64, error) {
	first, _ := l.bounds()
	return first, nil
}

// LastIndex returns the index of the last entry, 0 if there is none.
func (l *logStore) LastIndex() (uint64, error) {
	_, last := l.bounds()
	return last, nil
}

func (l *logStore) bounds() (first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, l.last
}

// GetLog reads an entry. Outside of the log's bounds it returns
// raft.ErrLogNotFound itself, which Raft compares with ==; an entry missing
// inside of them is corruption.
func (l *logStore) GetLog(index uint64, log *raft.Log) error {
	l.mu.Lock()
	known := l.recent.get(index, log)
	l.mu.Unlock()
	if known {
		return nil
	}
	b, err := l.store.Get(nil, l.key(index))
	if errors.Is(err, kv.ErrNotFound) {
		// Truncation may have passed by since the read: look at bounds now.
		if first, last := l.bounds(); index < first || index > last || last == 0 {
			return raft.ErrLogNotFound
		}
		err = kv.Corruptionf("entry missing")
	}
	if err == nil {
		err = decodeLog(b, index, log)
	}
	if err != nil {
		return l.fail(fmt.Sprintf("entry %d", index), err)
	}
	return nil
}

// StoreLog stores one entry.
func (l *logStore) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries, synced, in one batch.
func (l *logStore) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	b := l.store.NewBatch()
	defer b.Close()
	var value []byte
	for _, log := range logs {
		value = appendLog(value[:0], log)
		if err := b.Set(l.key(log.Index), value); err != nil {
			return l.fail(fmt.Sprintf("entry %d", log.Index), err)
		}
	}
	bytes := int64(b.Len())
	if err := b.Commit(kv.Sync); err != nil {
		return l.fail(fmt.Sprintf("storing entry %d", logs[0].Index), err)
	}
	l.mu.Lock()
	if l.first == 0 {
		l.first = logs[0].Index
	}
	l.last = logs[len(logs)-1].Index
	l.recent.add(logs)
	l.total.Add(l.size.add(l.last, bytes))
	l.mu.Unlock()
	l.grown()
	return nil
}

// DeleteRange deletes the entries min..max. Raft calls it for a tail that
// another leader's entries replace; prefixes go by truncate.
func (l *logStore) DeleteRange(min, max uint64) error {
	b := l.store.NewBatch()
	defer b.Close()
	if err := b.DeleteRange(kv.Span{Lower: l.key(min), Upper: l.key(max + 1)}); err != nil {
		return l.fail(fmt.Sprintf("deleting %d..%d", min, max), err)
	}
	// The bounds first: a reader that misses an entry inside of them takes it for lost.
	l.forget(min, max)
	// Unsynced: nothing is promised that it could break, and what Raft stores
	// next is synced behind it in the same log.
	if err := b.Commit(kv.NoSync); err != nil {
		return l.fail(fmt.Sprintf("deleting %d..%d", min, max), err)
	}
	return nil
}

// forget takes the entries min..max out of the bounds of the log.
func (l *logStore) forget(min, max uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recent.forget(min, max)
	switch {
	case min <= l.first && max >= l.last:
		l.first, l.last = 0, 0
		l.total.Add(l.size.dropAll())
	case min <= l.first && max >= l.first:
		l.first = max + 1
		l.total.Add(l.size.dropTo(max))
	case max >= l.last && min <= l.last:
		l.last = min - 1
		l.size.dropMarks(l.last)
	}
}

// truncate deletes the entries up to durable, but always keeps the last one
// and, within keepBytes, the last keepEntries. It returns how many it deleted.
func (l *logStore) truncate(durable, keepEntries uint64, keepBytes int64) (uint64, error) {
	l.mu.Lock()
	first, last := l.first, l.last
	to := l.size.boundary(keepBytes) // what lies beyond takes at most keepBytes
	l.mu.Unlock()
	if last == 0 {
		return 0, nil
	}
	if last > keepEntries {
		to = max(to, last-keepEntries)
	}
	to = min(to, durable, last-1)
	if to < first {
		return 0, nil
	}
	return to - first + 1, l.DeleteRange(first, to)
}

// clearLogs deletes what a founding that was cut off may have left.
func clearLogs(store kv.Store, shard uint32) error {
	b := store.NewBatch()
	defer b.Close()
	prefix := logPrefix(shard, 0)
	err := b.DeleteRange(kv.PrefixSpan(prefix[:len(prefix)-8]))
	if err == nil {
		err = b.Commit(kv.NoSync)
	}
	if err != nil {
		return fmt.Errorf("shard %d: clear the log: %w", shard, err)
	}
	return nil
}

// appendLog appends the stored form of an entry. The time it was appended is
// not kept: nothing but a metric of Raft reads it.
func appendLog(b []byte, log *raft.Log) []byte {
	b = append(b, rowVersion, byte(log.Type))
	b = binary.AppendUvarint(b, log.Term)
	b = binary.AppendUvarint(b, uint64(len(log.Extensions)))
	b = append(b, log.Extensions...)
	return append(b, log.Data...)
}

// decodeLog decodes b into log, which shares its memory. It refuses what Raft
// would end the process on: a type it does not know and a configuration that
// does not decode.
func decodeLog(b []byte, index uint64, log *raft.Log) error {
	if len(b) < 2 || b[0] != rowVersion {
		return kv.Corruptionf("%d bytes of an unknown version", len(b))
	}
	d := decoder{rest: b[2:]}
	*log = raft.Log{Index: index, Type: raft.LogType(b[1]), Term: d.uvarint()}
	if ext := d.bytes(uint64(len(b))); len(ext) > 0 {
		log.Extensions = ext
	}
	log.Data = d.rest
	switch {
	case d.bad || log.Term == 0:
		return kv.Corruptionf("%d bytes cut short", len(b))
	case log.Type == raft.LogConfiguration:
		_, err := decodeConfiguration(log.Data)
		return err
	case log.Type != raft.LogCommand && log.Type != raft.LogNoop && log.Type != raft.LogBarrier:
		return kv.Corruptionf("type %d", log.Type)
	}
	return nil
}
