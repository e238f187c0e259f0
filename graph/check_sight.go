package graph

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/counter"
)

// sight is what a check sees: a view of each shard of this node, each of its own
// moment.
type sight struct {
	views []*view
	at    [NumSlots]*view // by the slots that they own; nil: on another node
}

// take fills s, which is released after use.
func (s *sight) take(members []*member) error {
	for _, mb := range members {
		v, err := mb.machine.acquire()
		if err != nil {
			s.release()
			return err
		}
		s.views = append(s.views, v)
		if v.own == nil {
			continue
		}
		for slot := v.own.First; slot <= v.own.Last; slot++ {
			// In the middle of a split a parent's view may be from before it.
			if old := s.at[slot]; old == nil || old.own.Gen < v.own.Gen {
				s.at[slot] = v
			}
		}
	}
	return nil
}

func (s *sight) release() {
	for _, v := range s.views {
		v.release()
	}
	s.views = nil
}

// of is the view that has the lists of v; nil: they are on another node.
func (s *sight) of(v Vertex) *view { return s.at[SlotOf(v)] }

// list opens a list that is on this node.
func (s *sight) list(l ListKey) (*edgelist.List, error) {
	list, err := edgelist.Open(&proofSource{key: l, read: s.of(l.Vertex).snap})
	if err != nil {
		return nil, fmt.Errorf("list %v: %w", l, err)
	}
	return list, nil
}

// disagree says how the list other differs from the edge e that its peer has.
func (s *sight) disagree(other ListKey, peer uint64, e *edgelist.Edge) (string, error) {
	list, err := s.list(other)
	if err != nil {
		return "", err
	}
	got, ok, err := list.Get(peer)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return "the other end lacks it", nil
	case got.Time != e.Time:
		return fmt.Sprintf("time %d here, %d at the other end", e.Time, got.Time), nil
	case other.Dir < hidden && !bytes.Equal(got.Props, e.Props):
		return "other properties at the other end", nil
	}
	return "", nil
}

// sumDiffers says how a derived counter differs from the sum it stands for. Where
// some of what it sums is on another node, it says nothing.
func (s *sight) sumDiffers(owner Vertex, d *Derived) (string, error) {
	sum, ok, err := s.sum(owner, d)
	if errors.Is(err, edgelist.ErrCorrupt) {
		return fmt.Sprintf("derived counter over a damaged list: %v", err), nil
	}
	if err != nil || !ok {
		return "", err
	}
	got, ok, err := s.counter(owner, d.Metric)
	if err != nil || !ok || got == sum {
		return "", err
	}
	return fmt.Sprintf("derived counter is %d, the sum %d", got, sum), nil
}

// counter reads a metric; ok is false where its row is damaged, which the proof of
// the row tells.
func (s *sight) counter(owner Vertex, m Metric) (value int64, ok bool, err error) {
	v := s.of(owner)
	stored, err := v.snap.Get(nil, appendCounterKey(nil, &CounterRef{Vertex: owner, Metric: m}))
	if errors.Is(err, kv.ErrNotFound) {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, err
	}
	row, err := counter.ParseRow(stored)
	if err != nil {
		return 0, false, nil
	}
	return row.Get(uint16(m)-1, v.now).Value, true, nil
}

// sum adds up what a derived counter stands for; ok is false where not all of it
// is on this node.
func (s *sight) sum(owner Vertex, d *Derived) (sum int64, ok bool, err error) {
	over, err := s.list(ListKey{Vertex: owner, Type: d.Over, Dir: Out})
	if err != nil {
		return 0, false, err
	}
	def, _ := s.of(owner).schema.EdgeTypeByID(d.Over)
	it := over.Iter(edgelist.Query{Order: edgelist.ByID})
	for it.Next() {
		target := Vertex{def.To, it.Edge().Peer}
		at := s.of(target)
		if at == nil {
			return 0, false, nil
		}
		if at.schema == nil || at.schema.derivedCounter(d.name()) == nil || !at.backfills.counts(d, target) {
			continue // the shard does not count it yet
		}
		counted, err := s.list(ListKey{Vertex: target, Type: d.Sum, Dir: In})
		if err != nil {
			return 0, false, err
		}
		sum += int64(counted.Count())
	}
	return sum, true, it.Err()
}

// proofSource reads the pages of one list from the store, past the cache: a check
// neither trusts what is in memory nor drives out of it what others need. It
// remembers the head, which is all there is of most lists.
type proofSource struct {
	key  ListKey
	read kv.Reader
	head *edgelist.Page
	buf  [headSize + pageSuffix]byte
}

// Page implements edgelist.Source.
func (s *proofSource) Page(id edgelist.PageID) (*edgelist.Page, error) {
	isHead := id == edgelist.PageID{}
	if isHead && s.head != nil {
		return s.head, nil
	}
	page, err := readPage(s.read, appendPageKey(s.buf[:0], s.key, id))
	if isHead {
		s.head = page
	}
	return page, err
}
