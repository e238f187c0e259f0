package catalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// First bytes of the rows; doc.go draws them.
const (
	rowSpace = "\xff\xf1"

	rowHead   = rowSpace + "m"
	rowNode   = rowSpace + "n"
	rowShard  = rowSpace + "s"
	rowSchema = rowSpace + "y"
)

// Machine is the catalog's state machine, to be started as shard CatalogShard. Its
// Board shows the map to readers.
type Machine struct {
	store   kv.Reader
	board   *Board
	leading atomic.Bool

	// Of the caller of Apply, Cut, Publish and Restore; see shard.Machine.
	w       *working
	unshown bool // w is newer than the board
	stopped error
}

// Result answers a command.
type Result struct {
	Version uint64 // of the map after the command
	Changed bool   // false: the map was so already, or the edit was refused
	Err     error  // why it was refused: one of the Err… of this package, with words
}

// NewMachine returns the machine whose state lies in store, perhaps empty.
func NewMachine(store kv.Reader) (*Machine, error) {
	m := &Machine{store: store, board: NewBoard(nil)}
	if err := m.Restore(); err != nil {
		return nil, err
	}
	m.Publish(0)
	return m, nil
}

// Board shows the map as of the last Publish.
func (m *Machine) Board() *Board { return m.board }

// Leading reports whether this replica leads the catalog, with its term open.
func (m *Machine) Leading() bool { return m.leading.Load() }

// Lead implements shard.Machine.
func (m *Machine) Lead(leading bool) { m.leading.Store(leading) }

// Apply implements shard.Machine. Each result is a Result.
func (m *Machine) Apply(e shard.Entry) ([]any, error) {
	if m.stopped != nil {
		return nil, m.stopped
	}
	results := make([]any, len(e.Commands))
	for i, cmd := range e.Commands {
		expected, edit, err := ParseCommand(cmd)
		if err != nil {
			m.stopped = fmt.Errorf("catalog: entry %d, command %d: %w", e.Index, i, err)
			return nil, m.stopped
		}
		changed, refusal := m.w.apply(expected, edit)
		m.unshown = m.unshown || changed
		results[i] = Result{Version: m.w.m.Version, Changed: changed, Err: refusal}
	}
	return results, nil
}

// Cut implements shard.Machine.
func (m *Machine) Cut(b kv.Batch) error {
	err := m.w.cut(b)
	if err != nil {
		m.stopped = fmt.Errorf("catalog: cut: %w", err)
	}
	return m.stopped
}

// Publish implements shard.Machine.
func (m *Machine) Publish(uint64) {
	if m.unshown {
		m.unshown = false
		m.board.show(m.w.published())
	}
}

// Parts implements shard.Machine.
func (m *Machine) Parts() kv.Parts { return Parts() }

// Parts names the state of the catalog in a store.
func Parts() kv.Parts { return kv.Parts{Data: kv.PrefixSpan([]byte(rowSpace))} }

// Restore implements shard.Machine: it reads the map from the store.
func (m *Machine) Restore() error {
	loaded, err := load(m.store)
	if err != nil {
		return err
	}
	m.w, m.stopped = newWorking(*loaded), nil
	m.unshown = loaded.Version > m.board.Map().Version
	return nil
}

func nodeKey(id string) []byte  { return []byte(rowNode + id) }
func shardKey(id uint32) []byte { return binary.BigEndian.AppendUint32([]byte(rowShard), id) }

// cut writes what was changed since the last cut.
func (w *working) cut(b kv.Batch) error {
	if !w.head {
		return nil
	}
	e := newEncoder(formatVersion)
	e.head(&w.m)
	if err := b.Set([]byte(rowHead), e.b); err != nil {
		return err
	}
	if w.schema {
		if err := b.Set([]byte(rowSchema), append([]byte{formatVersion}, w.m.Schema...)); err != nil {
			return err
		}
	}
	for _, n := range w.m.Nodes {
		if !w.nodes[n.ID] {
			continue
		}
		e := newEncoder(formatVersion)
		e.node(&n)
		if err := b.Set(nodeKey(n.ID), e.b); err != nil {
			return err
		}
	}
	if err := w.cutShards(b); err != nil {
		return err
	}
	w.head, w.schema = false, false
	clear(w.nodes)
	clear(w.shards)
	return nil
}

func (w *working) cutShards(b kv.Batch) error {
	ids := make([]uint32, 0, len(w.shards))
	for id := range w.shards {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		e := newEncoder(formatVersion)
		e.shard(w.shard(id))
		if err := b.Set(shardKey(id), e.b); err != nil {
			return err
		}
	}
	return nil
}

// load reads the map from its rows; unfounded where there are none.
func load(r kv.Reader) (*Map, error) {
	head, err := r.Get(nil, []byte(rowHead))
	if errors.Is(err, kv.ErrNotFound) {
		return &Map{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	d := newDecoder(head)
	m := d.head()
	if err := d.end("head", len(head)); err != nil {
		return nil, corruptf("head of %d bytes: unknown form", len(head))
	}
	if m.Schema, err = loadSchema(r); err != nil {
		return nil, err
	}
	if err := m.loadParts(r); err != nil {
		return nil, err
	}
	slices.SortFunc(m.Shards, func(a, b Shard) int { return int(a.First) - int(b.First) })
	if err := m.Validate(); err != nil {
		return nil, corrupt(err)
	}
	return &m, nil
}

func loadSchema(r kv.Reader) ([]byte, error) {
	b, err := r.Get(nil, []byte(rowSchema))
	if err != nil {
		return nil, fmt.Errorf("catalog: schema: %w", err)
	}
	if len(b) == 0 || b[0] == 0 || b[0] > formatVersion {
		return nil, corruptf("schema of %d bytes: unknown form", len(b))
	}
	return append([]byte(nil), b[1:]...), nil
}

// loadParts reads the rows of nodes and shards.
func (m *Map) loadParts(r kv.Reader) error {
	it, err := r.NewIter(kv.PrefixSpan([]byte(rowSpace)))
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		err = m.loadRow(it)
	}
	if err := errors.Join(err, it.Error(), it.Close()); err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	return nil
}

func (m *Map) loadRow(it kv.Iterator) error {
	b, err := it.Value()
	if err != nil {
		return err
	}
	key := string(it.Key())
	d := newDecoder(b)
	switch {
	case strings.HasPrefix(key, rowNode):
		n := d.node()
		d.bad = d.bad || key != string(nodeKey(n.ID))
		m.Nodes = append(m.Nodes, n)
	case strings.HasPrefix(key, rowShard):
		s := d.shard()
		d.bad = d.bad || key != string(shardKey(s.ID))
		if s.ID == CatalogShard {
			m.Catalog = s
		} else {
			m.Shards = append(m.Shards, s)
		}
	case key == rowHead, key == rowSchema:
		return nil
	default:
		return corruptf("row %x: unknown kind", key)
	}
	return d.end(fmt.Sprintf("row %x", key), len(b))
}
