package graph

import (
	"context"
	"encoding/binary"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
)

// storedRow is one row of the data of a shard, as a scan meets it.
type storedRow struct {
	kind  byte // familyList, familyCounter, or 0 for any other
	key   []byte
	list  ListKey           // familyList
	pages []edgelist.PageID // familyList: the list's pages beside its head
	head  bool              // familyList: the head is there
	owner Vertex            // familyCounter; of a free-form one only the type
	value []byte            // familyCounter
}

// scan calls do for each list and counter row of the view's shard, in key order.
func (v *view) scan(ctx context.Context, do func(*storedRow) error) error {
	it, err := v.snap.NewIter(dataSpan(v.own))
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; {
		if err := ctx.Err(); err != nil {
			return err
		}
		row := storedRow{key: append([]byte(nil), it.Key()...)}
		switch {
		case isList(row.key):
			row.kind = familyList
			ok = row.takeList(it)
		case isCounter(row.key):
			row.kind = familyCounter
			row.owner = Vertex{Type: VertexType(binary.BigEndian.Uint16(row.key[2:])), ID: 0}
			if row.owner.Type <= maxTypeID {
				row.owner.ID = binary.BigEndian.Uint64(row.key[4:])
			}
			value, err := it.Value()
			if err != nil {
				return err
			}
			row.value = append([]byte(nil), value...)
			ok = it.Next()
		default:
			ok = it.Next()
		}
		if err := do(&row); err != nil {
			return err
		}
	}
	return it.Error()
}

// isCounter reports whether key is that of a vertex's counters or of a free-form one.
func isCounter(key []byte) bool {
	return len(key) == 13 && key[12] == familyCounter && key[2] != 0xff || len(key) > 4 && key[2] == 0xff && key[3] == 0xff
}

func isList(key []byte) bool {
	_, _, ok := parseListKey(key)
	return ok
}

// takeList reads the keys of one list, from its head or first page on.
func (r *storedRow) takeList(it kv.Iterator) bool {
	r.list, _, _ = parseListKey(r.key)
	for {
		l, page, ok := parseListKey(it.Key())
		if !ok || l != r.list {
			return true
		}
		if len(page) == 0 {
			r.head = true
		} else {
			r.pages = append(r.pages, edgelist.PageID{Order: edgelist.Order(page[0]), No: binary.BigEndian.Uint32(page[1:])})
		}
		if !it.Next() {
			return false
		}
	}
}

// ExportedEdge is an edge of an export.
type ExportedEdge struct {
	Type     EdgeType
	Src, Dst uint64
	Time     int64
	Props    []byte
}

const exportBatch = 1000

// Export calls do with all edges of a type (0: of all types), by source, in
// batches. Each shard is read as it was when the export came to it.
func (g *Graph) Export(ctx context.Context, t EdgeType, do func([]ExportedEdge) error) error {
	if t != 0 {
		if _, ok := g.Schema().EdgeTypeByID(t); !ok {
			return invalid("type", "an edge type of the schema", "edge type %d", t)
		}
	}
	x := exporter{t: t, do: do}
	for _, mb := range g.replicas() {
		v, err := mb.machine.acquire()
		if err != nil {
			return err
		}
		err = v.scan(ctx, func(r *storedRow) error { return x.list(ctx, v, r) })
		v.release()
		if err != nil {
			return err
		}
	}
	return x.flush()
}

type exporter struct {
	t     EdgeType
	do    func([]ExportedEdge) error
	batch []ExportedEdge
}

func (x *exporter) list(ctx context.Context, v *view, r *storedRow) error {
	if r.kind != familyList || r.list.Dir != Out || x.t != 0 && r.list.Type != x.t {
		return nil
	}
	def, ok := v.schema.EdgeTypeByID(r.list.Type)
	if !ok {
		return kv.Corruptionf("list %v of an unknown edge type", r.list)
	}
	list, err := v.list(r.list)
	if err != nil {
		return err
	}
	it := list.Iter(edgelist.Query{Order: edgelist.ByID})
	for it.Next() {
		e := it.Edge()
		if def.Symmetric && e.Peer < r.list.Vertex.ID {
			continue // the fact lies at the other end
		}
		x.batch = append(x.batch, ExportedEdge{Type: r.list.Type, Src: r.list.Vertex.ID, Dst: e.Peer, Time: e.Time, Props: e.Props})
		if len(x.batch) < exportBatch {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := x.flush(); err != nil {
			return err
		}
	}
	return v.m.faultOf(it.Err(), r.list)
}

func (x *exporter) flush() error {
	if len(x.batch) == 0 {
		return nil
	}
	err := x.do(x.batch)
	x.batch = x.batch[:0]
	return err
}
