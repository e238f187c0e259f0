package graph

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/counter"
)

// The machine's own rows in the store:
//
//	meta        version [1] | timeline, position, change floor [8 each]
//	schema      JSON
//	stream out  version [1] | epoch, trimmed [8 each], after a split also reach [8] | predecessor [4] | base [8]
//	stream in   version [1] | epoch, cursor [8 each]
//	owners      as owners.go draws it
const (
	metaVersion   = 1
	streamVersion = 1
	outVersion    = 2
	metaSize      = 1 + 3*8
	streamSize    = 1 + 2*8
	outSize       = 1 + 3*8 + 4 + 8
)

// listSink writes the pages of one list into a batch, and notes them for the cache.
type listSink struct {
	m   *Machine
	b   kv.Batch
	key ListKey
	buf [headSize + pageSuffix]byte
}

func (s *listSink) note(id edgelist.PageID, p *edgelist.Page) {
	s.m.keys = append(s.m.keys, makePageKey(&s.key, id))
	s.m.written = append(s.m.written, p)
}

// Put implements edgelist.Sink.
func (s *listSink) Put(id edgelist.PageID, p *edgelist.Page, value []byte) error {
	s.note(id, p)
	return s.b.Set(appendPageKey(s.buf[:0], s.key, id), value)
}

// Merge implements edgelist.Sink.
func (s *listSink) Merge(id edgelist.PageID, p *edgelist.Page, operand []byte) error {
	s.note(id, p)
	return s.b.Merge(appendPageKey(s.buf[:0], s.key, id), operand)
}

// Remove implements edgelist.Sink.
func (s *listSink) Remove(id edgelist.PageID) error {
	s.note(id, nil)
	return s.b.Delete(appendPageKey(s.buf[:0], s.key, id))
}

// cutLocal writes the shard's own rows.
func (m *Machine) cutLocal(b kv.Batch) error {
	for _, t := range m.trims {
		span := kv.Span{Lower: outboxKey(nil, m.cfg.ID, t.to, 0), Upper: outboxKey(nil, m.cfg.ID, t.to, t.pos+1)}
		if err := b.DeleteRange(span); err != nil {
			return err
		}
	}
	for _, s := range m.sortedStreams() {
		if err := m.cutStream(b, s); err != nil {
			return err
		}
	}
	if err := m.cutChangeFloor(b); err != nil {
		return err
	}
	if err := m.cutRecoveries(b); err != nil {
		return err
	}
	if m.schemaNew {
		if err := b.Set(appendLocal(nil, m.cfg.ID, localSchema), m.schema.encode()); err != nil {
			return err
		}
	}
	if err := m.cutBackfills(b); err != nil {
		return err
	}
	if m.ownersNew {
		if err := b.Set(appendLocal(nil, m.cfg.ID, localOwners), m.owners.encode()); err != nil {
			return err
		}
	}
	if err := b.Set(appendLocal(nil, m.cfg.ID, localTotals), m.totals.encode()); err != nil {
		return err
	}
	return b.Set(appendLocal(nil, m.cfg.ID, localMeta), encodeMeta(m.timeline, m.pos, m.changeFloor))
}

func encodeMeta(timeline, pos, changeFloor uint64) []byte {
	b := append(make([]byte, 0, metaSize), metaVersion)
	b = binary.BigEndian.AppendUint64(b, timeline)
	b = binary.BigEndian.AppendUint64(b, pos)
	return binary.BigEndian.AppendUint64(b, changeFloor)
}

func (m *Machine) cutChangeFloor(b kv.Batch) error {
	if m.changeFloor == m.floorCut {
		return nil
	}
	m.floorCut = m.changeFloor
	return b.DeleteRange(kv.Span{Lower: changeKey(nil, m.cfg.ID, 0), Upper: changeKey(nil, m.cfg.ID, m.changeFloor+1)})
}

func (m *Machine) cutStream(b kv.Batch, s *stream) error {
	if s.outDirty {
		s.outDirty = false
		if err := b.Set(streamKey(nil, m.cfg.ID, localStreamOut, s.peer), encodeOut(s)); err != nil {
			return err
		}
	}
	if s.inDirty {
		s.inDirty = false
		return b.Set(streamKey(nil, m.cfg.ID, localStreamIn, s.peer), encodeStream(s.inEpoch, s.cursor))
	}
	return nil
}

func encodeStream(epoch, pos uint64) []byte {
	b := append(make([]byte, 0, streamSize), streamVersion)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, epoch), pos)
}

// encodeOut writes what no split has touched as it always was.
func encodeOut(s *stream) []byte {
	if s.reach == 0 && s.pred == (predecessor{}) {
		return encodeStream(s.outEpoch, s.trimmed)
	}
	b := append(make([]byte, 0, outSize), outVersion)
	for _, v := range []uint64{s.outEpoch, s.trimmed, s.reach} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, s.pred.shard), s.pred.base)
}

func (s *stream) decodeOut(b []byte) (err error) {
	if len(b) == streamSize {
		s.outEpoch, s.trimmed, err = decodeStream(b)
		s.last = s.trimmed
		return err
	}
	if len(b) != outSize || b[0] != outVersion {
		return kv.Corruptionf("row of an outgoing stream: %d bytes", len(b))
	}
	s.outEpoch, s.trimmed, s.reach = binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:]), binary.BigEndian.Uint64(b[17:])
	s.pred = predecessor{binary.BigEndian.Uint32(b[25:]), binary.BigEndian.Uint64(b[29:])}
	s.last = max(s.trimmed, s.reach)
	return nil
}

func (s *stream) decodeIn(b []byte) (err error) {
	s.inEpoch, s.cursor, err = decodeStream(b)
	s.inOpen = true
	s.delivered.Store(s.cursor)
	return err
}

func decodeStream(b []byte) (epoch, pos uint64, err error) {
	if len(b) != streamSize || b[0] != streamVersion {
		return 0, 0, kv.Corruptionf("stream row of %d bytes", len(b))
	}
	return binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:]), nil
}

// readLocal returns a row that a shard may have once, nil where it has none. A row is
// never empty.
func readLocal(r kv.Reader, shard uint32, family byte) ([]byte, error) {
	row, err := r.Get(nil, appendLocal(nil, shard, family))
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return nil, nil
	case err == nil && len(row) == 0:
		return nil, kv.Corruptionf("shard %d: row of family %d is empty", shard, family)
	}
	return row, err
}

// load reads the machine's own rows. A store without them is an empty shard.
func (m *Machine) load() error {
	meta, err := readLocal(m.cfg.Store, m.cfg.ID, localMeta)
	if err != nil {
		return fmt.Errorf("meta: %w", err)
	}
	if meta == nil {
		return nil
	}
	if len(meta) != metaSize || meta[0] != metaVersion {
		return kv.Corruptionf("meta row of %d bytes", len(meta))
	}
	m.timeline = binary.BigEndian.Uint64(meta[1:])
	m.pos = binary.BigEndian.Uint64(meta[9:])
	m.changeFloor = binary.BigEndian.Uint64(meta[17:])
	m.floorCut = m.changeFloor
	if err := m.loadRecoveries(); err != nil {
		return fmt.Errorf("recoveries: %w", err)
	}
	if err := m.loadSchema(); err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	if err := m.loadOwners(); err != nil {
		return fmt.Errorf("owners: %w", err)
	}
	row, err := m.cfg.Store.Get(nil, appendLocal(nil, m.cfg.ID, localTotals))
	if err != nil {
		return fmt.Errorf("totals: %w", err)
	}
	if m.totals, err = decodeTotals(row); err != nil {
		return err
	}
	if err := m.loadFamily(); err != nil {
		return fmt.Errorf("family: %w", err)
	}
	if err := m.loadBackfills(); err != nil {
		return fmt.Errorf("backfills: %w", err)
	}
	if err := m.loadBirth(); err != nil {
		return fmt.Errorf("birth: %w", err)
	}
	if err := m.loadTrees(); err != nil {
		return fmt.Errorf("trees: %w", err)
	}
	return m.loadStreams()
}

// loadSchema reads the schema. There is none where the shard's first entry, which
// only opens a term, was cut and the init command behind it was not.
func (m *Machine) loadSchema() error {
	text, err := readLocal(m.cfg.Store, m.cfg.ID, localSchema)
	if text == nil || err != nil {
		return err
	}
	if m.schema, err = decodeSchema(text); err != nil {
		return kv.Corruptionf("%w", err)
	}
	return nil
}

// loadFamily reads which shards this one was one with, if any.
func (m *Machine) loadFamily() error {
	row, err := readLocal(m.cfg.Store, m.cfg.ID, localFamily)
	if row == nil || err != nil {
		return err
	}
	m.family, err = decodeFamily(row)
	return err
}

// loadBirth reads which shard this one was split off from, if any.
func (m *Machine) loadBirth() error {
	row, err := readLocal(m.cfg.Store, m.cfg.ID, localBirth)
	if row == nil || err != nil {
		return err
	}
	m.birth, err = decodeBirth(row)
	return err
}

// loadOwners reads who owns slots, and all that depends on which are the shard's own.
func (m *Machine) loadOwners() error {
	o, err := readOwners(m.cfg.Store, m.cfg.ID)
	if err == nil && o == nil && m.schema != nil {
		o = foundingOwners(m.cfg.Founding)
	}
	if o == nil || err != nil {
		return err
	}
	return m.setOwners(o)
}

// readOwners returns the owners in the state of a shard, nil where it has none.
func readOwners(r kv.Reader, shard uint32) (owners, error) {
	row, err := readLocal(r, shard, localOwners)
	if row == nil || err != nil {
		return nil, err
	}
	return decodeOwners(row)
}

// setOwners puts owners into force. Where they change the shard's own slots, nothing
// of the counters may be left to be cut.
func (m *Machine) setOwners(o owners) error {
	own := o.own(m.cfg.ID)
	if own != nil && (m.own == nil || m.own.First != own.First || m.own.Last != own.Last) {
		var err error
		if m.counters, err = counter.Open(m.counterConfig(own), m.cfg.Store); err != nil {
			return fmt.Errorf("counters: %w", err)
		}
		if m.own == nil {
			if m.marks, err = loadMarks(m.cfg.Store, own); err != nil {
				return err
			}
		}
		for s := own.First; m.own == nil && s <= own.Last; s++ {
			m.last[s].Store(m.pos)
		}
	}
	m.owners, m.own, m.ownersTold = o, own, false
	return nil
}

func (m *Machine) loadStreams() error {
	load := func(family byte, set func(s *stream, row []byte) error) error {
		it, err := m.cfg.Store.NewIter(kv.PrefixSpan(appendLocal(nil, m.cfg.ID, family)))
		if err != nil {
			return err
		}
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			v, err := it.Value()
			if err != nil {
				return err
			}
			k := it.Key()
			if err := set(m.stream(binary.BigEndian.Uint32(k[len(k)-4:])), v); err != nil {
				return err
			}
		}
		return it.Error()
	}
	if err := load(localStreamIn, (*stream).decodeIn); err != nil {
		return fmt.Errorf("incoming streams: %w", err)
	}
	if err := load(localStreamOut, (*stream).decodeOut); err != nil {
		return fmt.Errorf("outgoing streams: %w", err)
	}
	return m.loadOutboxEnds()
}

// loadOutboxEnds finds the last position given on each outgoing stream.
func (m *Machine) loadOutboxEnds() error {
	for id, s := range *m.streams.Load() { // any order: each is read for itself
		it, err := m.cfg.Store.NewIter(kv.Span{
			Lower: outboxKey(nil, m.cfg.ID, id, 0), Upper: outboxKey(nil, m.cfg.ID, id+1, 0),
		})
		if err != nil {
			return err
		}
		if it.Last() {
			k := it.Key()
			s.last = max(s.last, binary.BigEndian.Uint64(k[len(k)-8:]))
		}
		err = errors.Join(it.Error(), it.Close())
		if err != nil {
			return fmt.Errorf("outbox to %d: %w", id, err)
		}
	}
	return nil
}

// sortedStreams returns the streams by peer.
func (m *Machine) sortedStreams() []*stream {
	all := *m.streams.Load()
	out := make([]*stream, 0, len(all))
	for _, s := range all {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *stream) int { return cmp.Compare(a.peer, b.peer) })
	return out
}
