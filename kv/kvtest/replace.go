package kvtest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lianadb/liana/kv"
)

// before is what the store holds in the cases of testReplace.
const before = "a=v c=v d=v f=v l=v m=v z=v"

func testReplace(t *testing.T, open New) {
	t.Run("Parts", func(t *testing.T) { testParts(t, open) })
	cases(t, open, map[string]func(*testing.T, kv.Store){
		"FoldsAndHidesWhatWasThere":   replaceMerges,
		"ShowsNothingBeforeCommit":    replaceUnseen,
		"LeavesOpenIteratorsWhole":    replaceUnderIterators,
		"TakesNothingMoreAfterCommit": replaceTwice,
		"FailsOnAClosedStore": func(t *testing.T, s kv.Store) {
			r, err := s.Replace(kv.Parts{Data: span("c", "f")})
			must(t, err)
			must(t, s.Close())
			wantErr(t, "commit", r.Commit(nil), kv.ErrClosed)
			must(t, r.Close())
			_, err = s.Replace(kv.Parts{})
			wantErr(t, "replace", err, kv.ErrClosed)
		},
		"RunsBesideWriters": replaceBesideWriters,
	})
	seed := uint64(time.Now().UnixNano())
	t.Run(fmt.Sprintf("Random/seed=%d", seed), func(t *testing.T) { replaceRandom(t, open, seed) })
}

// span is [lower, upper); an empty upper is no bound.
func span(lower, upper string) kv.Span {
	s := kv.Span{Lower: []byte(lower)}
	if upper != "" {
		s.Upper = []byte(upper)
	}
	return s
}

// replace replaces parts by keys and values in turn.
func replace(t *testing.T, s kv.Store, parts kv.Parts, rows []kv.Row, pairs ...string) error {
	t.Helper()
	r, err := s.Replace(parts)
	must(t, err)
	defer func() { must(t, r.Close()) }()
	for i := 0; i < len(pairs); i += 2 {
		if err := r.Set([]byte(pairs[i]), []byte(pairs[i+1])); err != nil {
			return err
		}
	}
	return r.Commit(rows)
}

func row(key string) kv.Row { return kv.Row{Key: []byte(key), Value: []byte("w")} }

// testParts replaces parts of every shape. A case without want is refused.
func testParts(t *testing.T, open New) {
	data, local := span("c", "f"), span("l", "n")
	both := kv.Parts{Data: data, Local: []kv.Span{local}}
	tests := map[string]func(*testing.T, kv.Store){}
	for name, c := range map[string]struct {
		parts kv.Parts
		rows  []kv.Row
		set   string // keys
		want  string
		err   error
	}{
		"Both":            {both, []kv.Row{row("y"), row("a")}, "cm", "a=w c=w f=v m=w y=w z=v", nil},
		"NoContent":       {both, nil, "", "a=v f=v z=v", nil},
		"NoLocal":         {kv.Parts{Data: data}, nil, "e", "a=v e=w f=v l=v m=v z=v", nil},
		"EmptyData":       {kv.Parts{Data: span("c", "c"), Local: []kv.Span{local}}, nil, "m", "a=v c=v d=v f=v m=w z=v", nil},
		"TurnedData":      {kv.Parts{Data: span("q", "p"), Local: []kv.Span{local}}, nil, "m", "a=v c=v d=v f=v m=w z=v", nil},
		"EmptyLocal":      {kv.Parts{Data: data, Local: []kv.Span{span("l", "l")}}, nil, "c", "a=v c=w f=v l=v m=v z=v", nil},
		"NoKeyInLocal":    {kv.Parts{Data: data, Local: []kv.Span{{Upper: []byte("\x00")}}}, nil, "c", "a=v c=w f=v l=v m=v z=v", nil},
		"NoKeyInData":     {kv.Parts{Data: kv.Span{Upper: []byte("\x00")}, Local: []kv.Span{local}}, nil, "m", "a=v c=v d=v f=v m=w z=v", nil},
		"Everything":      {kv.Parts{}, nil, "k", "k=w", nil},
		"FromTheStart":    {kv.Parts{Data: kv.Span{Upper: []byte("d")}}, nil, "b", "b=w d=v f=v l=v m=v z=v", nil},
		"ToTheEnd":        {kv.Parts{Data: span("f", "")}, nil, "g", "a=v c=v d=v g=w", nil},
		"LocalFromStart":  {kv.Parts{Data: data, Local: []kv.Span{{Upper: []byte("b")}}}, nil, "", "f=v l=v m=v z=v", nil},
		"LocalToTheEnd":   {kv.Parts{Data: data, Local: []kv.Span{span("m", "")}}, nil, "", "a=v f=v l=v", nil},
		"LocalBeforeData": {kv.Parts{Data: local, Local: []kv.Span{data}}, nil, "mc", "a=v c=w f=v m=w z=v", nil},
		"OutsideOfParts":  {both, nil, "cg", "", kv.ErrOutside},
		"NotAscending":    {both, nil, "dc", "", kv.ErrOutside},
		"TheSameKeyTwice": {both, nil, "cc", "", kv.ErrOutside},
		"ASpanLeft":       {both, nil, "mc", "", kv.ErrOutside},
		"RowInData":       {both, []kv.Row{row("d")}, "c", "", kv.ErrOutside},
		"RowInLocal":      {both, []kv.Row{row("l")}, "c", "", kv.ErrOutside},
		"RowTwice":        {both, []kv.Row{row("a"), row("a")}, "c", "", kv.ErrOutside},
		"RowWithoutKey":   {both, []kv.Row{row("")}, "c", "", kv.ErrEmptyKey},
		"RowWithLongKey":  {both, []kv.Row{row(strings.Repeat("x", kv.MaxKeySize+1))}, "c", "", kv.ErrTooLarge},
	} {
		tests[name] = func(t *testing.T, s kv.Store) {
			set(t, s, strings.Fields(strings.ReplaceAll(before, "=", " "))...)
			var pairs []string
			for _, key := range c.set {
				pairs = append(pairs, string(key), "w")
			}
			err, want := replace(t, s, c.parts, c.rows, pairs...), c.want
			if !errors.Is(err, c.err) || c.err == nil && err != nil {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if c.err != nil {
				want = before
			}
			for range 2 {
				wantPairs(t, s, kv.Span{}, want)
				must(t, s.Flush())
				must(t, s.Compact(kv.Span{}))
			}
		}
	}
	tests["EmptyKey"] = func(t *testing.T, s kv.Store) {
		wantErr(t, "set", replace(t, s, kv.Parts{}, nil, "", "w"), kv.ErrEmptyKey)
	}
	tests["LongKey"] = func(t *testing.T, s kv.Store) {
		wantErr(t, "set", replace(t, s, kv.Parts{}, nil, strings.Repeat("x", kv.MaxKeySize+1), "w"), kv.ErrTooLarge)
	}
	cases(t, open, tests)
}

func replaceMerges(t *testing.T, s kv.Store) {
	write(t, s, func(b kv.Batch) {
		must(t, b.Set([]byte("c"), []byte("v1")))
		must(t, b.Merge([]byte("d"), []byte("o1")))
	})
	must(t, s.Flush())
	write(t, s, func(b kv.Batch) {
		must(t, b.Merge([]byte("c"), []byte("o2")))
		must(t, b.Merge([]byte("l"), []byte("o2")))
		must(t, b.DeleteRange(span("e", "z")))
		must(t, b.Merge([]byte("m"), []byte("o2")))
	})
	must(t, replace(t, s, kv.Parts{Data: span("c", "f"), Local: []kv.Span{span("l", "n")}}, nil, "c", "v7", "m", "v8"))
	write(t, s, func(b kv.Batch) {
		must(t, b.Merge([]byte("c"), []byte("o9")))
		must(t, b.Merge([]byte("d"), []byte("o9")))
	})
	for range 2 {
		wantPairs(t, s, kv.Span{}, "c=v79 d=v9 m=v8")
		must(t, s.Flush())
		must(t, s.Compact(kv.Span{}))
	}
	v, err := s.GetDurable(nil, []byte("m"))
	must(t, err)
	if string(v) != "v8" {
		t.Errorf("durable %q", v)
	}
}

func replaceUnseen(t *testing.T, s kv.Store) {
	set(t, s, "c", "v", "l", "v")
	for range 2 { // the second begins where the first was given up
		r, err := s.Replace(kv.Parts{Data: span("c", "f"), Local: []kv.Span{span("l", "n")}})
		must(t, err)
		must(t, r.Set([]byte("c"), []byte("w")))
		must(t, r.Set([]byte("m"), []byte("w")))
		must(t, s.Flush())
		wantPairs(t, s, kv.Span{}, "c=v l=v")
		must(t, r.Close())
		wantErr(t, "commit after close", r.Commit(nil), kv.ErrClosed)
		wantPairs(t, s, kv.Span{}, "c=v l=v")
	}
}

func replaceUnderIterators(t *testing.T, s kv.Store) {
	set(t, s, "a", "1", "c", "1", "l", "1")
	must(t, s.Flush())
	set(t, s, "d", "1", "m", "1", "z", "1")
	it, err := s.NewIter(kv.Span{})
	must(t, err)
	snap, err := s.NewSnapshot()
	must(t, err)
	ofSnap, err := snap.NewIter(kv.Span{})
	must(t, err)
	must(t, replace(t, s, kv.Parts{Data: span("c", "f"), Local: []kv.Span{span("l", "n")}}, nil, "e", "2"))
	must(t, s.Flush())
	must(t, s.Compact(kv.Span{}))
	for what, it := range map[string]kv.Iterator{"iterator": it, "iterator of a snapshot": ofSnap} {
		var got string
		for ok := it.First(); ok; ok = it.Next() {
			got += string(it.Key())
		}
		must(t, it.Error())
		if got != "acdlmz" {
			t.Errorf("%s: keys %q", what, got)
		}
		must(t, it.Close())
	}
	must(t, snap.Close())
	wantPairs(t, s, kv.Span{}, "a=1 e=2 z=1")
}

func replaceTwice(t *testing.T, s kv.Store) {
	r, err := s.Replace(kv.Parts{Data: span("c", "f")})
	must(t, err)
	must(t, r.Set([]byte("c"), []byte("w")))
	must(t, r.Commit(nil))
	wantErr(t, "set after commit", r.Set([]byte("d"), []byte("w")), kv.ErrCommitted)
	wantErr(t, "second commit", r.Commit(nil), kv.ErrCommitted)
	must(t, r.Close())
	wantErr(t, "set after close", r.Set([]byte("e"), []byte("w")), kv.ErrClosed)
	wantErr(t, "second close", r.Close(), kv.ErrClosed)
	wantPairs(t, s, kv.Span{}, "c=w")
}

// replaceBesideWriters replaces one part again and again while others are written.
func replaceBesideWriters(t *testing.T, s kv.Store) {
	const writes, replacements = 1500, 12
	done := make(chan error, 1)
	go func() {
		var err error
		for i := range writes {
			b := s.NewBatch()
			key := fmt.Appendf(nil, "%c%04d", "am"[i%2], i) // on both sides
			err = errors.Join(err, b.Set(key, key), b.Commit(kv.NoSync), b.Close())
		}
		done <- err
	}()
	for i := range replacements {
		text := fmt.Sprint(i)
		must(t, replace(t, s, kv.Parts{Data: span("c", "f"), Local: []kv.Span{span("h", "i")}}, []kv.Row{row("b" + text)},
			"c"+text, text, "d", text, "h"+text, text))
		wantGet(t, s, "d", text)
	}
	must(t, <-done)
	last := fmt.Sprint(replacements - 1)
	wantPairs(t, s, span("c", "i"), fmt.Sprintf("c%s=%s d=%s h%s=%s", last, last, last, last, last))
	for i := range writes {
		key := fmt.Sprintf("%c%04d", "am"[i%2], i)
		wantGet(t, s, key, key)
	}
}

// replaceRandom mixes replacements of random parts with the operations of RandomOps,
// without its snapshots: they may lose sight of what is replaced.
func replaceRandom(t *testing.T, open New, seed uint64) {
	r := &randomRun{T: t, rng: rand.New(rand.NewPCG(seed, 2)), s: open(t, Merger()), model: map[string]string{}}
	defer func() { must(t, r.s.Close()) }()
	for range 400 {
		switch r.rng.IntN(8) {
		case 0:
			r.replace()
		case 1:
			must(t, r.s.Flush())
		case 2:
			must(t, r.s.Compact(r.span()))
		case 3:
			r.walk(r.s, r.model)
		default:
			r.batch()
		}
		r.compare(r.s, r.model)
		if t.Failed() {
			t.Fatalf("failed with seed %d", seed)
		}
	}
}

// replace replaces up to three random spans, of which any may be the data.
func (r *randomRun) replace() {
	bounds := []string{r.key(), r.key(), r.key(), r.key(), r.key(), r.key()}
	slices.Sort(bounds)
	spans := []kv.Span{span(bounds[0], bounds[1]), span(bounds[2], bounds[3]), span(bounds[4], bounds[5])}
	if r.rng.IntN(4) == 0 {
		spans[0].Lower = nil
	}
	if r.rng.IntN(4) == 0 {
		spans[2].Upper = nil
	}
	r.rng.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	parts := kv.Parts{Data: spans[0], Local: spans[1 : 1+r.rng.IntN(3)]}
	content := map[string]string{}
	for range r.rng.IntN(12) {
		content[r.key()] = fmt.Sprint("v", r.rng.IntN(1000))
	}
	model := maps.Clone(r.model)
	var pairs []string
	var rows []kv.Row
	for _, s := range parts.Spans() {
		maps.DeleteFunc(model, func(k, _ string) bool { return in(s, k) })
		for _, k := range slices.Sorted(maps.Keys(content)) {
			if in(s, k) {
				pairs = append(pairs, k, content[k])
				model[k] = content[k]
				delete(content, k)
			}
		}
	}
	for k, v := range content {
		rows = append(rows, kv.Row{Key: []byte(k), Value: []byte(v)})
		model[k] = v
	}
	must(r.T, replace(r.T, r.s, parts, rows, pairs...))
	r.model = model
}
