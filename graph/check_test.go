package graph

import (
	"context"
	"math/rand"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
)

// damaged is a store whose graph is closed, and another like it that differs in
// what a test puts from there into the first.
type damaged struct {
	t           *testing.T
	w           *world // whose state is store
	store, twin kv.Store
	like        *EdgeTypeDef
	follow      EdgeType
}

func (d *damaged) rows(from kv.Store, l ListKey) [][2][]byte {
	head := appendHeadKey(nil, l)
	it, err := from.NewIter(kv.Span{Lower: head, Upper: append(head[:len(head):len(head)], 0xff)})
	must(d.t, err)
	defer it.Close()
	var rows [][2][]byte
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.Value()
		must(d.t, err)
		rows = append(rows, [2][]byte{append([]byte(nil), it.Key()...), append([]byte(nil), value...)})
	}
	return rows
}

func (d *damaged) write(change func(b kv.Batch)) {
	b := d.store.NewBatch()
	change(b)
	must(d.t, b.Commit(false))
	must(d.t, b.Close())
}

// lose removes a list.
func (d *damaged) lose(l ListKey) {
	rows := d.rows(d.store, l)
	if len(rows) == 0 {
		d.t.Fatalf("list %v is not there", l)
	}
	d.write(func(b kv.Batch) {
		for _, r := range rows {
			must(d.t, b.Delete(r[0]))
		}
	})
}

// exchange puts a list as the twin has it.
func (d *damaged) exchange(l ListKey) {
	d.lose(l)
	d.write(func(b kv.Batch) {
		for _, r := range d.rows(d.twin, l) {
			must(d.t, b.Set(r[0], r[1]))
		}
	})
}

func (d *damaged) counterKey() []byte {
	return appendCounterKey(nil, &CounterRef{Vertex: Vertex{d.like.From, author}, Metric: 1})
}

const (
	fan    = 100 // of note 1, whose list is a tree
	author = 900
)

func damagedStore(t *testing.T) *damaged {
	small := edgelist.DefaultOptions()
	small.SplitEntries, small.Branch, small.MaxDeltas = 8, 5, 4
	d := &damaged{t: t}
	build := func(late int64, props string) *world {
		w := newWorld(t, true, func(c *Config) { c.Lists = small })
		like := w.edgeType("like")
		d.like, _ = w.g.Schema().EdgeTypeByID(like)
		d.follow = w.edgeType("follow")
		for i := uint64(1); i <= fan; i++ {
			w.add(like, i, 1, int64(i))
		}
		w.add(like, 7, 2, 100+late)
		encoded, err := EncodeProps(map[string]string{"k": props})
		must(t, err)
		w.mutate(Mutation{Op: OpAdd, Type: like, Src: 7, Dst: 3, Time: 100, Props: encoded})
		for i := range late + 1 {
			w.add(like, 8, 4+uint64(i), 100)
		}
		for _, note := range []uint64{1, 3, 5} {
			w.add(w.edgeType("published"), author, note, 100)
		}
		w.add(d.follow, 5, 5, 100)
		w.check()
		w.close()
		return w
	}
	d.w = build(0, "here")
	d.store, d.twin = d.w.state, build(1, "there").state
	return d
}

// TestCheckFindsWhatIsWrong plants each kind of fault, and looks for it in a store
// and in the graph that runs on it.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	for want, damage := range map[string]func(d *damaged){
		"2:2 (in), peer 7: the other end lacks it":  func(d *damaged) { d.lose(d.like.fact(7)) },
		"1:7 (out), peer 2: the other end lacks it": func(d *damaged) { d.lose(d.like.inverse(2)) },
		"time 100 here, 101 at the other end":       func(d *damaged) { d.exchange(d.like.inverse(2)) },
		"other properties at the other end":         func(d *damaged) { d.exchange(d.like.inverse(3)) },
		"peer 5: the other end lacks it":            func(d *damaged) { d.exchange(d.like.fact(8)) },
		"derived counter is 102, the sum 101": func(d *damaged) {
			key := d.counterKey()
			row, err := d.twin.Get(nil, key)
			must(d.t, err)
			d.write(func(b kv.Batch) { must(d.t, b.Set(key, row)) })
		},
		"counter row": func(d *damaged) {
			d.write(func(b kv.Batch) { must(d.t, b.Set(d.counterKey(), []byte("no row"))) })
		},
		"is missing": func(d *damaged) {
			rows := d.rows(d.store, d.like.inverse(1))
			if len(rows) < 4 {
				d.t.Fatalf("note 1 has %d rows, not a tree", len(rows))
			}
			d.write(func(b kv.Batch) { must(d.t, b.Delete(rows[1][0])) })
		},
		"belongs to no tree": func(d *damaged) {
			key := appendPageKey(nil, d.like.inverse(1), edgelist.PageID{Order: edgelist.ByTime, No: 999})
			rows := d.rows(d.store, d.like.inverse(1))
			d.write(func(b kv.Batch) { must(d.t, b.Set(key, rows[len(rows)-1][1])) })
		},
		"pages without a head": func(d *damaged) {
			d.write(func(b kv.Batch) { must(d.t, b.Delete(appendHeadKey(nil, d.like.inverse(1)))) })
		},
		"OUT and": func(d *damaged) { d.lose(ListKey{Vertex: Vertex{d.like.From, 5}, Type: d.follow, Dir: Out}) },
		"noted as such": func(d *damaged) {
			l := d.like.inverse(2)
			for shard := range uint32(4) {
				d.write(func(b kv.Batch) { must(d.t, b.Set(appendHeadKey(appendLocal(nil, shard, localTree), l), nil)) })
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			d := damagedStore(t)
			damage(d)
			r, err := CheckStore(context.Background(), d.store, 4, nil)
			must(t, err)
			expectFinding(t, "store", r, want)

			d.w.open()
			r, err = d.w.g.Check(context.Background(), nil)
			must(t, err)
			expectFinding(t, "graph", r, want)
		})
	}
}

func expectFinding(t *testing.T, where string, r CheckReport, want string) {
	t.Helper()
	if r.Faults == 0 || !strings.Contains(strings.Join(r.Findings, "\n"), want) {
		t.Errorf("%s: %q was expected, found %d: %q", where, want, r.Faults, r.Findings)
	}
}

// TestCheckTellsADamagedListOnce: the edges of a list that cannot be read are not
// told one by one, and the check goes on to its end.
func TestCheckTellsADamagedListOnce(t *testing.T) {
	d := damagedStore(t)
	rows := d.rows(d.store, d.like.inverse(1))
	d.write(func(b kv.Batch) { must(t, b.Set(rows[1][0], []byte("no page"))) })
	d.lose(d.like.inverse(3))
	r, err := CheckStore(context.Background(), d.store, 4, nil)
	must(t, err)
	expectFinding(t, "store", r, "list ")
	expectFinding(t, "store", r, "peer 3: the other end lacks it")
	for _, finding := range r.Findings {
		if strings.Contains(finding, "peer 1:") {
			t.Errorf("an edge of the damaged list is told: %s", finding)
		}
	}
}

// TestCheckOfAStoreInWhichNothingAgrees has more doubts than wait at once.
func TestCheckOfAStoreInWhichNothingAgrees(t *testing.T) {
	w := newWorld(t, true, nil)
	like := w.edgeType("like")
	def, _ := w.g.Schema().EdgeTypeByID(like)
	const notes = maxDoubts + 100
	var batch []Mutation
	for i := uint64(1); i <= notes; i++ {
		batch = append(batch, Mutation{Op: OpAdd, Type: like, Src: 1, Dst: i, Time: 1})
		if len(batch) == MaxBatch || i == notes {
			w.mutate(batch...)
			batch = nil
		}
	}
	d := &damaged{t: t, store: w.state}
	w.close()
	d.lose(def.fact(1))
	r, err := CheckStore(context.Background(), d.store, 4, nil)
	must(t, err)
	if r.Faults != notes+1 || len(r.Findings) != maxFindings { // each edge, and the shard's total
		t.Errorf("%d faults, %d told; %d edges lack an end", r.Faults, len(r.Findings), notes)
	}
}

// TestCheckBesideWrites: nothing that is merely on its way is a fault.
func TestCheckBesideWrites(t *testing.T) {
	w := newWorld(t, true, nil)
	like, published := w.edgeType("like"), w.edgeType("published")
	var stop atomic.Bool
	var writers sync.WaitGroup
	for seed := range int64(4) {
		writers.Go(func() {
			rng := rand.New(rand.NewSource(seed))
			for !stop.Load() {
				batch := make([]Mutation, 20)
				for i := range batch {
					batch[i] = Mutation{Op: Op(1 + rng.Intn(3)), Type: like, Src: uint64(1 + rng.Intn(200)), Dst: uint64(1 + rng.Intn(20))}
					if rng.Intn(20) == 0 {
						batch[i].Type = published
					}
				}
				if _, _, err := w.g.Mutate(context.Background(), batch, WaitForward); err != nil {
					t.Errorf("seed %d: %v", seed, err)
					return
				}
			}
		})
	}
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		r, err := w.g.Check(context.Background(), nil)
		must(t, err)
		if r.Faults > 0 {
			t.Errorf("beside writes: %d faults: %q", r.Faults, r.Findings)
			break
		}
	}
	stop.Store(true)
	writers.Wait()
	w.check()
}
