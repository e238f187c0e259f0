package shard

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// A snapshot on its way to another replica is a sequence of blocks
//
//	[4] length | [4] CRC-32C | length bytes
//
// ended by one of length 0. The first holds the position as the applied row does, the
// others rows of the machine's parts in ascending order,
//
//	uvarint | key | uvarint | value
//
// Its size is told before the first byte, so it is written to a file first, which has
// no name: nothing is left of it after a crash.
const (
	blockBytes = 256 << 10
	maxBlock   = 64 << 20 // a block of one large row
)

// spool makes a file without a name.
func spool(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "snapshot-*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// blockWriter writes blocks, as long as ctx lasts.
type blockWriter struct {
	ctx  context.Context
	w    *bufio.Writer
	buf  []byte
	size int64
}

func (b *blockWriter) row(key, value []byte) error {
	b.buf = append(binary.AppendUvarint(b.buf, uint64(len(key))), key...)
	b.buf = append(binary.AppendUvarint(b.buf, uint64(len(value))), value...)
	if len(b.buf) < blockBytes {
		return nil
	}
	return b.flush()
}

// flush ends the block at hand, even where it is empty: that is the end.
func (b *blockWriter) flush() error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	var head [8]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(b.buf)))
	binary.BigEndian.PutUint32(head[4:], checksum(b.buf))
	_, err := b.w.Write(head[:])
	if err == nil {
		_, err = b.w.Write(b.buf)
	}
	b.size += int64(len(head) + len(b.buf))
	b.buf = b.buf[:0]
	return err
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// readBlock reads a block into buf, which it returns, grown where needed. An empty one
// is the end.
func readBlock(r io.Reader, buf []byte) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("snapshot cut short: %w", err)
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > maxBlock {
		return nil, kv.Corruptionf("snapshot block of %d bytes", n)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, fmt.Errorf("snapshot cut short: %w", err)
	}
	if checksum(buf) != binary.BigEndian.Uint32(head[4:]) {
		return nil, kv.Corruptionf("snapshot block: the checksum differs")
	}
	return buf, nil
}

// cutRow takes the first row off a block.
func cutRow(b []byte) (key, value, rest []byte, err error) {
	d := decoder{rest: b}
	key = d.bytes(kv.MaxKeySize)
	value = d.bytes(maxBlock)
	if d.bad {
		return nil, nil, nil, kv.Corruptionf("snapshot row: cut short")
	}
	return key, value, d.rest, nil
}

// outgoing is a view of the state on its way to a replica. It is copied only once the
// replica is known to be there.
type outgoing struct {
	of       *snapshots
	pin      *pin
	view     kv.Snapshot
	replaced uint64 // installs that had begun when it was taken
	position position
	file     *os.File // after export
}

// errReplaced: the state was replaced while it was copied. This replica does not lead.
var errReplaced = errors.New("the state was replaced meanwhile")

// errNotCopied: Raft reads a snapshot that has not been told its size.
var errNotCopied = errors.New("snapshot: not copied yet")

// Read implements io.Reader.
func (o *outgoing) Read(b []byte) (int, error) {
	if o.file == nil {
		return 0, errNotCopied
	}
	o.pin.touch()
	return o.file.Read(b)
}

// Close implements io.Closer. What was kept for the receiver is kept a while longer.
func (o *outgoing) Close() error {
	o.pin.release()
	err := o.view.Close()
	if o.file != nil {
		err = errors.Join(err, o.file.Close())
	}
	return err
}

// export writes the state to a file, and returns its size. It ends early with ctx.
func (o *outgoing) export(ctx context.Context) (int64, error) {
	f, err := spool(o.of.dir)
	if err != nil {
		return 0, err
	}
	o.file = f
	w := &blockWriter{ctx: ctx, w: bufio.NewWriterSize(f, blockBytes)}
	w.buf = o.position.encode()
	err = w.flush()
	for _, span := range o.of.parts().Spans() {
		if err == nil {
			err = w.span(o.view, span)
		}
	}
	if err == nil && len(w.buf) > 0 {
		err = w.flush()
	}
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		err = w.w.Flush()
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil && o.of.replacing() != o.replaced {
		err = errReplaced
	}
	return w.size, err
}

func (b *blockWriter) span(r kv.Reader, span kv.Span) error {
	it, err := r.NewIter(span)
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var value []byte
		if value, err = it.Value(); err == nil {
			err = b.row(it.Key(), value)
		}
	}
	return errors.Join(err, it.Error(), it.Close())
}

// Restore takes over a received snapshot (RULES A4 to A6). One that is older than what
// was applied is refused, one as old is taken for done.
func (s *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fault.get(); err != nil {
		return err
	}
	in := bufio.NewReaderSize(r, blockBytes)
	head, err := readBlock(in, nil)
	if err != nil {
		return fmt.Errorf("shard %d: restore: %w", s.shard, err)
	}
	p, err := decodePosition(append([]byte(nil), head...))
	switch {
	case err != nil:
		return fmt.Errorf("shard %d: restore: %w", s.shard, err)
	case p.index < s.applied.index:
		return fmt.Errorf("shard %d: restore: the snapshot stands at entry %d, applied are %d", s.shard, p.index, s.applied.index)
	case p.index == s.applied.index:
		return nil
	}
	if err := s.install(in, p); err != nil {
		return fmt.Errorf("shard %d: install the snapshot of entry %d: %w", s.shard, p.index, err)
	}
	return s.takeOver(p)
}

// install replaces the state in the store.
func (s *fsm) install(in io.Reader, p position) error {
	rep, err := s.store.Replace(s.machine.Parts())
	if err != nil {
		return err
	}
	defer rep.Close()
	var block []byte
	for {
		if s.ending() {
			return ErrStopped
		}
		if block, err = readBlock(in, block); err != nil {
			return err
		}
		if len(block) == 0 {
			break
		}
		for rest := block; len(rest) > 0; {
			var key, value []byte
			if key, value, rest, err = cutRow(rest); err == nil {
				err = rep.Set(key, value)
			}
			if err != nil {
				return err
			}
		}
	}
	s.replacing.Add(1)
	return rep.Commit([]kv.Row{
		{Key: stateRowKey(stateApplied, s.shard), Value: p.encode()},
		{Key: stateRowKey(stateInstalled, s.shard), Value: installedRow{p.index, p.term}.encode()},
	})
}

// takeOver goes on from what was installed. A failure from here on is a fault: the
// store is at another place than the machine.
func (s *fsm) takeOver(p position) error {
	s.applied, s.pending = p, 0
	s.installedAt = installedRow{p.index, p.term}
	s.cut.Store(&p)
	s.reached.Store(p.index)
	s.installs.Add(1)
	err := s.machine.Restore()
	if err == nil {
		s.machine.Publish(p.index)
		s.fresh.reached(p.index)
		err = s.installed(s.installedAt)
	}
	if err != nil {
		s.fault.set(fmt.Errorf("shard %d: after an install: %w", s.shard, err))
	}
	return err
}

// installedRow names the entry that an installed snapshot stands at. It lies in the
// state until an entry behind it is cut: while it does, the log may be empty, or of a
// branch that the snapshot has made void.
type installedRow struct{ index, term uint64 }

func (r installedRow) encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{rowVersion}, r.index)
	return binary.BigEndian.AppendUint64(b, r.term)
}

func readInstalled(store kv.Reader, shard uint32) (installedRow, error) {
	b, err := store.Get(nil, stateRowKey(stateInstalled, shard))
	if errors.Is(err, kv.ErrNotFound) {
		return installedRow{}, nil
	}
	if err != nil {
		return installedRow{}, fmt.Errorf("shard %d: installed row: %w", shard, err)
	}
	if len(b) != 17 || b[0] != rowVersion {
		return installedRow{}, kv.Corruptionf("shard %d: installed row of %d bytes", shard, len(b))
	}
	return installedRow{binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:])}, nil
}

// discardStale deletes a log that an installed snapshot made void: one that does not
// hold the entry the snapshot stands at, and does not follow it (RULES A4).
func (l *logStore) discardStale(r installedRow) (discarded bool, last uint64, err error) {
	first, last := l.bounds()
	if r.index == 0 || last == 0 || first == r.index+1 {
		return false, last, nil
	}
	if first <= r.index && r.index <= last {
		var at raft.Log
		if err := l.GetLog(r.index, &at); err != nil {
			return false, last, err
		}
		if at.Term == r.term {
			return false, last, nil
		}
	}
	if err := l.DeleteRange(first, last); err != nil {
		return false, last, err
	}
	return true, last, l.sync()
}

// sync makes deletions durable.
func (l *logStore) sync() error {
	b := l.store.NewBatch()
	defer b.Close()
	// A batch without content would not be written.
	if err := b.Delete(l.key(0)); err != nil {
		return l.fail("sync", err)
	}
	if err := b.Commit(kv.Sync); err != nil {
		return l.fail("sync", err)
	}
	return nil
}
