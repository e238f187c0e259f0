package graph

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
)

// Blind adds. That an edge is delivered once, and after the delete of an earlier
// one, proves that an inverse list does not have it. So an add to a list that is
// not in the cache needs no read: its merge operand is enough. What has to hold:
//
//   - the list is packed, for the head of a tree takes no operands: trees remembers
//     the IN lists that are trees, in memory and as rows;
//   - chains of operands stay short and lists are split in time: after blindAdds the
//     list is read. The counters are by hash, and lost at a restart, which costs at
//     most that many operands more.
//
// The form of a list may differ by replica, its content does not.
type blind struct {
	adds  []uint8 // since the list was last read, by hash
	trees map[uint64]uint32
}

const (
	blindAdds  = 64
	blindTable = 1 << 20
)

func newBlind() blind {
	return blind{adds: make([]uint8, blindTable), trees: map[uint64]uint32{}}
}

func hashList(l *ListKey) uint64 {
	return mix64(l.Vertex.ID + (uint64(l.Vertex.Type)<<32|uint64(l.Type)<<8|uint64(l.Dir))*0x9E3779B97F4A7C15)
}

// allows reports whether l may be added to without being read, and counts that.
func (b *blind) allows(l *ListKey) bool {
	h := hashList(l)
	n := &b.adds[h%blindTable]
	if b.trees[h] > 0 || *n >= blindAdds {
		*n = 0
		return false
	}
	*n++
	return true
}

// mayAddBlind reports whether rec can be applied to its list unread.
func (m *Machine) mayAddBlind(rec *record) bool {
	// Properties could take an unread head far past the limit of a page.
	if rec.kind != recAdd || rec.list.Dir != In || len(rec.props) > 0 {
		return false
	}
	if o, ok := m.lists[rec.list]; ok {
		return o.w == nil && m.blind.allows(&rec.list)
	}
	return !m.cache.holds(makePageKey(&rec.list, edgelist.PageID{})) && m.blind.allows(&rec.list)
}

// addBlind gives the list of rec its edge.
func (m *Machine) addBlind(rec *record) {
	o, ok := m.lists[rec.list]
	if !ok {
		o = &openList{key: rec.list}
		m.lists[rec.list] = o
	}
	o.unread = append(o.unread, edgelist.Edge{Peer: rec.peer, Time: rec.time, Props: bytes.Clone(rec.props)})
	m.number(o, *rec)
}

// readNow turns a list with blind adds into one that is read.
func (m *Machine) readNow(o *openList) error {
	w, err := m.openWriter(o.key)
	if err != nil {
		return err
	}
	o.wasTree = w.Tree()
	for _, e := range o.unread {
		ok, err := w.Insert(e)
		if err == nil && !ok {
			err = kv.Corruptionf("edge to %d, added unread, is there already", e.Peer)
		}
		if err != nil {
			return fmt.Errorf("list %v: %w", o.key, err)
		}
	}
	if len(o.unread) > 0 {
		w.SetVersion(o.version)
	}
	o.w, o.unread = w, nil
	return nil
}

// flushBlind writes the operand of a list that was not read.
func (m *Machine) flushBlind(b kv.Batch, o *openList) error {
	op, err := edgelist.AppendInsert(nil, o.version, o.unread)
	if err != nil {
		return err
	}
	m.stale = append(m.stale, makePageKey(&o.key, edgelist.PageID{}))
	return b.Merge(appendHeadKey(nil, o.key), op)
}

// noteForm keeps trees up to date after the list was flushed.
func (m *Machine) noteForm(b kv.Batch, o *openList) error {
	tree := o.w.Tree()
	if tree == o.wasTree || o.key.Dir != In {
		return nil
	}
	if m.child != nil {
		m.treesNoted[string(appendHeadKey(nil, o.key))] = tree
	}
	row := appendHeadKey(appendLocal(nil, m.cfg.ID, localTree), o.key)
	h := hashList(&o.key)
	if tree {
		m.blind.trees[h]++
		return b.Set(row, nil)
	}
	if m.blind.trees[h]--; m.blind.trees[h] == 0 {
		delete(m.blind.trees, h)
	}
	return b.Delete(row)
}

// loadTrees reads which lists are trees.
func (m *Machine) loadTrees() error {
	it, err := m.cfg.Store.NewIter(kv.PrefixSpan(appendLocal(nil, m.cfg.ID, localTree)))
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		l, _, ok := parseListKey(it.Key()[len(appendLocal(nil, 0, 0)):])
		if !ok {
			return kv.Corruptionf("row of a tree: key %x", it.Key())
		}
		m.blind.trees[hashList(&l)]++
	}
	return it.Error()
}

// isTree reports whether the shard's rows say that l is a tree.
func (v *view) isTree(l ListKey) (bool, error) {
	_, err := v.snap.Get(nil, appendHeadKey(appendLocal(nil, v.m.cfg.ID, localTree), l))
	if errors.Is(err, kv.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
