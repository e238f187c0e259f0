package graph

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/counter"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestFormatsAreFrozen compares everything that is stored or logged with golden
// bytes. A difference means that existing data directories would be misread: do not
// rewrite the file, give the format a new version.
func TestFormatsAreFrozen(t *testing.T) {
	var b strings.Builder
	line := func(name string, v []byte) { fmt.Fprintf(&b, "%-28s %s\n", name, hex.EncodeToString(v)) }

	user, note := Vertex{1, 42}, Vertex{2, 1<<62 + 7}
	l := ListKey{Vertex: note, Type: 3, Dir: In}
	line("slots", []byte(fmt.Sprint(SlotOf(user), SlotOf(note), SlotOfKey("hits"), SlotOfKey(""))))
	line("key head", appendHeadKey(nil, l))
	line("key page", appendPageKey(nil, l, edgelist.PageID{Order: edgelist.ByTime, No: 0x01020304}))
	line("key counter row", appendCounterKey(nil, &CounterRef{Vertex: user, Metric: 1}))
	line("key free counter", appendCounterKey(nil, &CounterRef{Key: "hits"}))
	line("key meta", appendLocal(nil, 3, localMeta))
	line("key change", changeKey(nil, 3, 0x0102))
	line("key outbox", outboxKey(nil, 3, 4, 0x0102))
	line("key stream", streamKey(nil, 3, localStreamIn, 4))
	line("stream row", encodeStream(1, 2))

	recs := sampleRecords()
	for _, withPrev := range []bool{true, false} {
		w := rowWriter{withPrev: withPrev}
		for i := range recs {
			w.add(&recs[i])
		}
		line(fmt.Sprintf("row prev=%v", withPrev), w.buf)
	}
	props, err := EncodeProps(map[string]string{"b": "2", "a": "1"})
	must(t, err)
	line("props", props)
	line("cmd mutate", encodeMutate(sampleMutations(), []int{0, 1, 2}))
	d := delivery{from: 1, epoch: 2, after: 3, version: 4, rows: [][]byte{{1, 2}, {3}}}
	line("cmd deliver", d.encode())
	d = delivery{from: 1, epoch: 2, after: 3, upTo: 9, pred: predecessor{7, 8}, version: 4, rows: [][]byte{{1, 2}}}
	line("cmd convey", d.encode())
	line("cmd claims", encodeClaims(foundingOwners(2)))
	line("cmd split", split{5, 700}.encode())
	f := family{founder: 1, first: 2, last: 3, base: totals{{t: 1, n: [4]uint64{4, 5}}}}
	line("family", f.encode())
	line("stream out", encodeOut(&stream{outEpoch: 1, trimmed: 2, reach: 3, pred: predecessor{4, 5}}))
	line("cmd trim", trim{to: 1, epoch: 2, pos: 3}.encode())
	inc := sampleIncrements()
	line("cmd increment", inc.encode())
	line("cmd set", encodeSetCounter(&CounterRef{Key: "k"}, -5, 7))
	line("cmd remove", encodeRemoveCounter(&CounterRef{Vertex: user, Metric: 2}))
	line("cmd edit", encodeEdits(sampleEdits(), []int{0, 1, 2}))
	line("cmd init", encodeInit(99, DefaultSchema(), 4))
	line("cmd backfill", backfillStep{derivedName{1, 2}, beforeSlot(3), afterSlot(700)}.encode())
	line("backfills", backfills{{derivedName{1, 2}, placeOf(note)}, {derivedName{3, 4}, place{}}}.encode())
	line("cmd mark", markCommand{VertexHide, note}.encode())
	line("cmd step", stepCommand{note, 77, jobPlace{3, hiddenIn, 1 << 40}, 128}.encode())
	line("cmd end", endCommand{note, 77}.encode())
	line("cmd given", encodeGiven(4095))
	line("key mark", markKey(nil, note))
	line("mark", sampleMark().encode())
	w := rowWriter{}
	for _, r := range hiddenRecords() {
		w.add(&r)
	}
	line("row of hidden edges", w.buf)
	line("totals hidden", totals{{t: 1, n: [4]uint64{4, 5, 6, 7}}}.encode())
	line("owners", foundingOwners(3).encode())
	line("cmd recover", RecoverCommand())
	line("cmd skip", skip{from: 1, epoch: 2, cursor: 3, to: 400}.encode())
	tok := sampleToken()
	line("token", []byte(tok.Encode()))
	q := ListQuery{List: l, Order: OldestFirst, Window: AllTime()}
	line("page token", []byte(PageCursor{Time: -1, ID: 2, Token: "x"}.encode(testKey, &q)))

	golden(t, "formats.txt", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		must(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if string(want) != got {
		t.Errorf("%s differs; got:\n%s", path, got)
	}
}

func sampleRecords() []record {
	l := ListKey{Vertex: Vertex{2, 7}, Type: 1, Dir: In}
	return []record{
		{pos: 1000, kind: recAdd, list: l, peer: 42, time: 1_700_000_000_000_000, props: []byte("p")},
		{pos: 1001, kind: recDelete, list: l, peer: 1 << 63, time: 1_700_000_000_000_005, prev: 1000},
		{pos: 1005, kind: recUpdate, list: ListKey{Vertex: Vertex{1, 9}, Type: 2}, peer: 3, time: 5, oldTime: -9, prev: 2},
		{pos: 1006, kind: recCounter, list: ListKey{Vertex: Vertex{2, 7}}, metric: 3, value: -17},
		{pos: 1007, kind: recCounter, key: "free", value: 1 << 62},
		{pos: 1008, kind: recCounter, list: ListKey{Vertex: Vertex{2, 7}}, metric: 3, gone: true},
		{pos: 1008, kind: recCounter, key: "for a time", value: 3, expires: true},
		{pos: 1009, kind: recDerived, list: ListKey{Vertex: Vertex{1, 4}}, metric: 1, value: 12},
	}
}

func sampleMark() *mark {
	return &mark{state: VertexHiding, job: 77, began: 1_700_000_000_000_000, total: 5, done: 4, asked: 80, at: jobPlace{3, In, 9}, through: true}
}

func hiddenRecords() []record {
	at, to := ListKey{Vertex: Vertex{2, 7}, Type: 1, Dir: In}, ListKey{Vertex: Vertex{1, 9}, Type: 1}
	return []record{
		{pos: 5, kind: recAskDelete, list: to, peer: 7},
		{pos: 6, kind: recAskHide, list: to, peer: 7},
		{pos: 7, kind: recAskShow, list: to, peer: 7},
		{pos: 9, kind: recHide, list: at, peer: 9, time: 1000, bits: bySource | byDest},
		{pos: 10, kind: recShow, list: at, peer: 9, time: 1000, props: []byte("p")},
		{pos: 300, kind: recDrop, list: at, peer: 9, time: 1000},
	}
}

func sampleMutations() []Mutation {
	return []Mutation{
		{Op: OpAdd, Type: 1, Src: 1, Dst: MaxID, Time: 5, Props: []byte("abc")},
		{Op: OpDelete, Type: 300, Src: 1 << 40, Dst: 2},
		{Op: OpUpdate, Type: 2, Src: 7, Dst: 8, Time: -1},
	}
}

func sampleIncrements() increments {
	return increments{requestID: "id", ordinals: []uint32{0, 7}, items: []Increment{
		{Counter: CounterRef{Vertex: Vertex{2, 5}, Metric: 1}, Delta: -3, Min: -10, HasMin: true, Max: 9, HasMax: true, ExpireAt: 77},
		{Counter: CounterRef{Key: "free"}, Delta: 1},
	}}
}

func sampleEdits() []CounterEdit {
	return []CounterEdit{
		{Counter: CounterRef{Key: "k\xff"}, Kind: counter.Add, Value: -2},
		{Counter: CounterRef{Vertex: Vertex{2, 5}, Metric: 1}, Kind: counter.Put, If: counter.IfAbsent, Value: 7, Keep: true},
		{Counter: CounterRef{Key: "k"}, Kind: counter.Expire, If: counter.IfExpiring | counter.IfLater, ExpireAt: 99},
	}
}

func sampleToken() Token {
	t := Token{Timeline: 0x0123456789abcdef, Others: true}
	t.see(1, 100)
	t.see(4095, 1<<40)
	t.await(PendingInverse{Src: 3, Pos: 9, Dst: 4})
	return t
}

func TestRowsAndCommandsComeBackAsTheyWere(t *testing.T) {
	recs := append(sampleRecords(), hiddenRecords()...)
	for i := range hiddenRecords() {
		recs[len(sampleRecords())+i].pos += 2000
	}
	w := rowWriter{withPrev: true}
	for i := range recs {
		w.add(&recs[i])
	}
	mk, err := decodeMark(sampleMark().encode())
	must(t, err)
	if mk != *sampleMark() {
		t.Errorf("mark: %+v, want %+v", mk, *sampleMark())
	}
	r := readRow(w.buf)
	for i := range recs {
		if !r.next() {
			t.Fatalf("record %d: %v", i, r.err())
		}
		if got, want := fmt.Sprintf("%+v", r.rec), fmt.Sprintf("%+v", recs[i]); got != want {
			t.Errorf("record %d: %s, want %s", i, got, want)
		}
	}
	if r.next() || r.err() != nil {
		t.Errorf("after the last record: %v", r.err())
	}
	inc := sampleIncrements()
	back, err := decodeIncrements(inc.encode()[1:])
	must(t, err)
	if got, want := fmt.Sprintf("%+v", *back), fmt.Sprintf("%+v", inc); got != want {
		t.Errorf("increments: %s, want %s", got, want)
	}
	tok := sampleToken()
	tb, err := ParseToken(tok.Encode())
	must(t, err)
	if fmt.Sprintf("%+v", *tb) != fmt.Sprintf("%+v", tok) {
		t.Errorf("token: %+v, want %+v", *tb, tok)
	}
	s := DefaultSchema()
	timeline, sb, shards, err := decodeInit(encodeInit(5, s, 3)[1:])
	must(t, err)
	if timeline != 5 || shards != 3 || !bytes.Equal(sb.encode(), s.encode()) {
		t.Error("init differs")
	}
}

func TestPropsComeBackAndAreSorted(t *testing.T) {
	m := map[string]string{"z": "", "a": "x", "m": "\x00ü"}
	b, err := EncodeProps(m)
	must(t, err)
	back, err := DecodeProps(b)
	must(t, err)
	if fmt.Sprint(back) != fmt.Sprint(m) {
		t.Errorf("%v, want %v", back, m)
	}
	for _, bad := range []map[string]string{{"": "x"}, {"a": "\xff"}, {"a": strings.Repeat("x", MaxProps)}} {
		if _, err := EncodeProps(bad); err == nil {
			t.Errorf("%.20v was accepted", bad)
		}
	}
	if _, err := DecodeProps([]byte{1, 'b', 0, 1, 'a', 0}); err == nil {
		t.Error("properties out of order were accepted")
	}
}

// keySpaces: rows of different kinds never share a key, and a shard's data is
// one span.
func TestKeysSortBySlotThenVertex(t *testing.T) {
	var keys [][]byte
	for id := uint64(1); id < 200; id++ {
		l := ListKey{Vertex: Vertex{2, id}, Type: 1}
		keys = append(keys, appendHeadKey(nil, l), appendPageKey(nil, l, edgelist.PageID{No: 1}),
			appendCounterKey(nil, &CounterRef{Vertex: l.Vertex, Metric: 1}), appendCounterKey(nil, &CounterRef{Key: fmt.Sprint(id)}))
	}
	slices.SortFunc(keys, bytes.Compare)
	for i := 1; i < len(keys); i++ {
		if bytes.Equal(keys[i-1], keys[i]) {
			t.Fatalf("key %x twice", keys[i])
		}
	}
	lower, upper := slotSpan(0, NumSlots-1)
	for _, k := range keys {
		if bytes.Compare(k, lower) < 0 || bytes.Compare(k, upper) >= 0 {
			t.Fatalf("key %x lies outside of all slots", k)
		}
	}
	if bytes.Compare(appendLocal(nil, 0, 'a'), upper) < 0 {
		t.Fatal("local rows lie among the data")
	}
}

func FuzzDecoders(f *testing.F) {
	recs := sampleRecords()
	w := rowWriter{withPrev: true}
	for i := range recs {
		w.add(&recs[i])
	}
	inc := sampleIncrements()
	d := delivery{from: 1, rows: [][]byte{w.buf}}
	for _, seed := range [][]byte{w.buf, inc.encode(), d.encode(), encodeMutate(sampleMutations(), []int{0, 1, 2}), encodeInit(1, DefaultSchema(), 4), foundingOwners(5).encode()} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := readRow(b)
		for n := 0; r.next(); n++ {
			if n > len(b) {
				t.Fatal("more records than bytes")
			}
		}
		mu := decoder{b: b}
		for n := mu.count(); n > 0 && mu.err == nil; n-- {
			mu.mutation()
		}
		if v, err := decodeIncrements(b); err == nil {
			if again, err := decodeIncrements(v.encode()[1:]); err != nil || len(again.items) != len(v.items) {
				t.Fatalf("increments do not come back: %v", err)
			}
		}
		for _, kind := range []byte{cmdDeliver, cmdConvey} {
			if v, err := decodeDelivery(kind, b); err == nil {
				cmd := v.encode()
				if again, err := decodeDelivery(cmd[0], cmd[1:]); err != nil || len(again.rows) != len(v.rows) || again.upTo != v.upTo {
					t.Fatalf("delivery does not come back: %v", err)
				}
			}
		}
		_, _ = decodeTrim(b)
		_, _ = decodeBackfills(b)
		_, _ = decodeBackfillStep(b)
		_, _ = decodeMark(b)
		_, _ = decodeMarkCommand(b)
		_, _ = decodeStep(b)
		_, _ = decodeEnd(b)
		_, _ = decodeTotals(b)
		_, _ = decodeSkip(b)
		_, _, _, _ = decodeInit(b)
		_, _ = decodeOwners(b)
		_, _, _ = decodeStream(b)
		if m, err := DecodeProps(b); err == nil && len(b) <= MaxProps {
			if back, err := EncodeProps(m); err == nil && len(back) > len(b) {
				t.Fatal("properties grew")
			}
		}
		_, _ = ParseToken(string(b))
		_, _ = parseCursor(testKey, &ListQuery{PageToken: string(b)})
	})
}

func FuzzSchema(f *testing.F) {
	f.Add([]byte(DefaultSchema().YAML()))
	f.Add([]byte("vertices: [{name: a, id: 1}]\nedges: [{name: b, id: 1, from: a, to: a}]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSchema(b)
		if err != nil {
			return
		}
		again, err := ParseSchema([]byte(s.YAML()))
		if err != nil || !bytes.Equal(again.encode(), s.encode()) {
			t.Fatalf("a schema does not come back from its YAML: %v", err)
		}
		if err := s.Extends(s); err != nil {
			t.Fatalf("a schema does not extend itself: %v", err)
		}
	})
}

// A command that no version of this program wrote stops the shard with an error
// marked as corruption, never with a panic.
func FuzzApply(f *testing.F) {
	inc := sampleIncrements()
	for _, seed := range [][]byte{inc.encode(), encodeMutate(sampleMutations(), []int{0, 1, 2}), {cmdExpire}, {cmdRecover}, markCommand{VertexDelete, Vertex{1, 2}}.encode(), stepCommand{vertex: Vertex{1, 2}, edges: 9}.encode(), encodeGiven(3), skip{from: 1, to: 2}.encode(), {99}, {}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cmd []byte) {
		m := newTestMachine(t, 0, 1)
		defer m.Close()
		if _, err := applyCommands(m, 1, cmd); err == nil {
			b := m.cfg.Store.NewBatch()
			defer b.Close()
			if err := m.Cut(b); err != nil {
				t.Fatal(err)
			}
			must(t, b.Commit(kv.NoSync))
			m.Publish(2)
		}
	})
}
