package kvtest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lianadb/liana/kv"
)

// testRandom runs random operations against the store and a map. The seed is in
// the name of the subtest; LIANA_LONG=1 runs many more.
func testRandom(t *testing.T, open New) {
	rounds, steps := 2, 1000
	if os.Getenv("LIANA_LONG") == "1" {
		rounds, steps = 100, 10_000
	}
	start := uint64(time.Now().UnixNano())
	for i := range uint64(rounds) {
		t.Run(fmt.Sprintf("seed=%d", start+i), func(t *testing.T) { RandomOps(t, open, start+i, steps) })
	}
}

// RandomOps runs steps random operations drawn from seed.
func RandomOps(t *testing.T, open New, seed uint64, steps int) {
	r := &randomRun{T: t, rng: rand.New(rand.NewPCG(seed, 1)), s: open(t, Merger()), model: map[string]string{}}
	defer func() {
		for len(r.views) > 0 {
			r.dropView()
		}
		must(t, r.s.Close())
	}()
	for range steps {
		r.step()
		if t.Failed() {
			t.Fatalf("failed with seed %d", seed)
		}
	}
	r.compare(r.s, r.model)
}

type randomRun struct {
	*testing.T
	rng   *rand.Rand
	s     kv.Store
	model map[string]string
	views []view
}

// view is a snapshot with the state that it must go on showing.
type view struct {
	snap  kv.Snapshot
	model map[string]string
}

// key draws from a small space, so that operations meet.
func (r *randomRun) key() string {
	const letters = "\x00ab\xff"
	k := make([]byte, 1+r.rng.IntN(3))
	for i := range k {
		k[i] = letters[r.rng.IntN(len(letters))]
	}
	return string(k)
}

func (r *randomRun) span() kv.Span {
	s := kv.Span{Lower: []byte(r.key()), Upper: []byte(r.key())}
	switch r.rng.IntN(8) {
	case 0:
		s.Lower = nil
	case 1:
		s.Upper = nil
	}
	return s
}

func in(s kv.Span, key string) bool {
	return key >= string(s.Lower) && (s.Upper == nil || key < string(s.Upper))
}

func (r *randomRun) step() {
	switch n := r.rng.IntN(100); {
	case n < 45:
		r.batch()
	case n < 65:
		key := r.key()
		r.check("get", key, r.s, r.model)
	case n < 82:
		r.walk(r.s, r.model)
	case n < 86:
		snap, err := r.s.NewSnapshot()
		must(r.T, err)
		r.views = append(r.views, view{snap, maps.Clone(r.model)})
		if len(r.views) > 4 {
			r.dropView()
		}
	case n < 94 && len(r.views) > 0:
		v := r.views[r.rng.IntN(len(r.views))]
		r.check("snapshot get", r.key(), v.snap, v.model)
		r.walk(v.snap, v.model)
	case n < 98:
		must(r.T, r.s.Flush())
		key := r.key()
		v, err := r.s.GetDurable(nil, []byte(key))
		r.same("get durable", key, answer(r.T, key, v, err), r.model)
	default:
		span := r.span()
		must(r.T, r.s.Compact(span))
		_, err := r.s.EstimateDiskUsage(span)
		must(r.T, err)
		r.compare(r.s, r.model)
	}
}

func (r *randomRun) dropView() {
	v := r.views[0]
	r.views = r.views[1:]
	r.compare(v.snap, v.model)
	must(r.T, v.snap.Close())
}

// batch writes a few random things; one in eight is thrown away.
func (r *randomRun) batch() {
	b := r.s.NewBatch()
	model := maps.Clone(r.model)
	for range 1 + r.rng.IntN(6) {
		r.write(b, model)
	}
	if r.rng.IntN(8) > 0 {
		must(r.T, b.Commit(kv.Durability(r.rng.IntN(4) == 0)))
		r.model = model
	}
	must(r.T, b.Close())
}

func (r *randomRun) write(b kv.Batch, model map[string]string) {
	key, text := r.key(), fmt.Sprint(r.rng.IntN(1000), ",")
	switch n := r.rng.IntN(20); {
	case n < 7:
		must(r.T, b.Set([]byte(key), []byte("v"+text)))
		model[key] = "v" + text
	case n < 15:
		must(r.T, b.Merge([]byte(key), []byte("o"+text)))
		if _, ok := model[key]; !ok {
			model[key] = "v"
		}
		model[key] += text
	case n < 19:
		must(r.T, b.Delete([]byte(key)))
		delete(model, key)
	default:
		span := r.span()
		must(r.T, b.DeleteRange(span))
		maps.DeleteFunc(model, func(k, _ string) bool { return in(span, k) })
	}
}

func (r *randomRun) check(what, key string, s kv.Reader, model map[string]string) {
	v, err := s.Get(nil, []byte(key))
	r.same(what, key, answer(r.T, key, v, err), model)
}

func (r *randomRun) same(what, key, got string, model map[string]string) {
	want, ok := model[key]
	if !ok {
		want = absent
	}
	if got != want {
		r.Errorf("%s %q = %q, want %q", what, key, got, want)
	}
}

// compare reads all of s.
func (r *randomRun) compare(s kv.Reader, model map[string]string) {
	var want []string
	for _, k := range slices.Sorted(maps.Keys(model)) {
		want = append(want, k+"="+model[k])
	}
	if got := pairs(r.T, s, kv.Span{}, false); got != strings.TrimSpace(strings.Join(want, " ")) {
		r.Errorf("store %q\nmodel %q", got, want)
	}
}

// walk moves an iterator at random beside an index into the model's sorted keys.
func (r *randomRun) walk(s kv.Reader, model map[string]string) {
	span := r.span()
	keys := slices.Sorted(maps.Keys(model))
	keys = slices.DeleteFunc(keys, func(k string) bool { return !in(span, k) })
	it, err := s.NewIter(span)
	must(r.T, err)
	at := -1 // index of the key it stands on; anything outside keys is nowhere
	for range 8 {
		var ok bool
		var what string
		at, ok, what = r.move(it, keys, at)
		if want := at >= 0 && at < len(keys); ok != want {
			r.Errorf("%s in %q: %v, want %v", what, span, ok, want)
		} else if ok {
			v, err := it.Value()
			must(r.T, err)
			if string(it.Key()) != keys[at] || string(v) != model[keys[at]] {
				r.Errorf("%s in %q: %q=%q, want %q=%q", what, span, it.Key(), v, keys[at], model[keys[at]])
			}
		} else {
			at = -1
		}
	}
	must(r.T, errors.Join(it.Error(), it.Close()))
}

// move makes one random move and returns where in keys it should lead.
func (r *randomRun) move(it kv.Iterator, keys []string, at int) (int, bool, string) {
	switch r.rng.IntN(6) {
	case 0:
		return 0, it.First(), "first"
	case 1:
		return len(keys) - 1, it.Last(), "last"
	case 2:
		key := r.key()
		i, _ := slices.BinarySearch(keys, key)
		return i, it.SeekGE([]byte(key)), fmt.Sprintf("seek >= %q", key)
	case 3:
		key := r.key()
		i, _ := slices.BinarySearch(keys, key)
		return i - 1, it.SeekLT([]byte(key)), fmt.Sprintf("seek < %q", key)
	case 4:
		if at < 0 {
			return -1, it.Next(), "next from nowhere"
		}
		return at + 1, it.Next(), "next"
	default:
		return at - 1, it.Prev(), "prev"
	}
}
