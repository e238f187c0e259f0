package rediscache

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lianadb/liana/cache"
)

// redisFlaws are the rules of the scripts that a modelRedis may break.
type redisFlaws struct {
	fillAnyPosition bool // F3: a fill may be older than h
	createAdds      bool // V4: what begins a list is added to what is there
	pushAnywhere    bool // F4: p is not compared
	pushCreates     bool // F2: a push creates rows
	floorIsTime     bool // L1: only the floor's time is compared
	addAppends      bool // L1: an add is taken to be the newest
	gapDrops        bool // W1: a gap seen by NUDGE drops the window
	notOnlyNewer    bool // changes are applied whatever the entry's number
}

// modelRedis does what the scripts do, written anew in Go over decoded entries.
type modelRedis struct {
	flaws redisFlaws
	mu    sync.Mutex
	keys  map[string]string

	leases map[string]time.Time
}

func newModelRedis() *modelRedis {
	return &modelRedis{keys: map[string]string{}, leases: map[string]time.Time{}}
}

func (r *modelRedis) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.keys)
}

func (r *modelRedis) node(string) string { return "" }

func (r *modelRedis) do(_ context.Context, calls []call) []reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]reply, len(calls))
	for i := range calls {
		out[i] = r.call(&calls[i])
	}
	return out
}

func one(s string) reply { return reply{values: [][]byte{[]byte(s)}} }

func (r *modelRedis) get(key string) reply {
	if v, ok := r.keys[key]; ok {
		return one(v)
	}
	return reply{values: [][]byte{nil}}
}

func (r *modelRedis) call(c *call) reply {
	switch c.script {
	case scriptNone:
		var out reply
		for _, k := range c.keys {
			out.values = append(out.values, r.get(k).values[0])
		}
		return out
	case scriptPush:
		return r.push(c)
	case scriptFill:
		return r.fill(c)
	case scriptNudge:
		return r.nudge(c)
	case scriptOpen:
		if _, ok := r.keys[c.keys[0]]; !ok {
			r.keys[c.keys[0]] = c.args[0]
		}
		return r.get(c.keys[0])
	case scriptRegen:
		if v, ok := r.keys[c.keys[0]]; ok && v == c.args[0] {
			r.keys[c.keys[0]] = c.args[1]
		}
		return r.get(c.keys[0])
	case scriptLease:
		if time.Now().Before(r.leases[c.keys[0]]) {
			return one("0")
		}
		ms, _ := strconv.Atoi(c.args[0])
		r.leases[c.keys[0]] = time.Now().Add(time.Duration(ms) * time.Millisecond)
		return one("1")
	}
	panic("bug: no such script")
}

func be(s string) uint64 { return binary.BigEndian.Uint64([]byte(s)) }

func (r *modelRedis) push(c *call) reply {
	p, ok := r.keys[c.keys[0]]
	if !ok || p != c.args[0] && !r.flaws.pushAnywhere {
		return r.get(c.keys[0])
	}
	limit, _ := strconv.Atoi(c.args[2])
	least, _ := strconv.Atoi(c.args[3])
	for i, key := range c.keys[1:] {
		arg := c.args[4+i]
		v, ok := r.keys[key]
		if !ok && r.flaws.pushCreates && arg[0] == 'c' {
			row := cache.Row{Fields: make([]cache.Field, 12)}
			v, ok = encodeEntry(&cache.Entry{Row: &row}), true
		}
		if !ok {
			continue
		}
		if v, ok = r.apply(v, arg[0], arg[1:], limit, least); ok {
			r.keys[key] = v
		} else {
			delete(r.keys, key)
		}
	}
	r.keys[c.keys[0]] = p[:8] + c.args[1]
	if r.flaws.pushAnywhere && be(p[8:]) > be(c.args[1]) {
		r.keys[c.keys[0]] = p
	}
	return one(p[:8] + c.args[1])
}

// apply applies operations to an entry; false: it has to go.
func (r *modelRedis) apply(v string, kind byte, ops string, limit, least int) (string, bool) {
	kinds := map[byte]cache.Kind{'c': cache.KindRow, 'l': cache.KindWindow, 'b': cache.KindChunk}
	sizes := map[byte]int{'c': rowOpSize, 'l': windowOpSize, 'b': chunkOpSize}
	e, err := decodeEntry(kinds[kind], []byte(v))
	if err != nil {
		return "", false
	}
	a := e.At.Number
	for ; len(ops) > 0; ops = ops[sizes[kind]:] {
		op := ops[:sizes[kind]]
		if be(op) <= a && !r.flaws.notOnlyNewer {
			continue
		}
		e.At.Number = max(e.At.Number, be(op))
		fits := false
		switch kind {
		case 'c':
			fits = applyRowOp(e.Row, op[8:])
		case 'l':
			fits = r.applyWindowOp(e.Window, op[8:], limit)
		case 'b':
			i := binary.BigEndian.Uint16([]byte(op[8:]))
			mask := byte(0x80) >> (i % 8)
			fits = e.Chunk.Bits[i/8]&mask != 0 == (op[10] == 0)
			e.Chunk.Bits[i/8] ^= mask
		}
		if !fits {
			return "", false
		}
	}
	if w := e.Window; w != nil && !w.Complete() && len(w.Edges) < least {
		return "", false
	}
	return encodeEntry(&e), true
}

func applyRowOp(row *cache.Row, op string) bool {
	field := int(binary.BigEndian.Uint16([]byte(op[1:])))
	if field >= len(row.Fields) {
		return true
	}
	f := &row.Fields[field]
	if op[0] == rowSet {
		*f = cache.Field(be(op[3:]))
		return true
	}
	if *f < 0 || *f > cache.MaxNumber {
		return false
	}
	if op[0] == rowInc {
		*f++
	} else {
		*f--
	}
	return *f >= 0
}

func (r *modelRedis) applyWindowOp(w *cache.Window, op string, limit int) bool {
	edge, old := decodeEdge([]byte(op[2:])), decodeEdge([]byte(op[18:]))
	complete := w.Complete()
	covered := func(e cache.Edge) bool {
		return complete || e.Compare(w.Floor) >= 0 || r.flaws.floorIsTime && e.Time >= w.Floor.Time
	}
	add := func(e cache.Edge) bool {
		i, found := slices.BinarySearchFunc(w.Edges, e, cache.Edge.Compare)
		if !covered(e) || found {
			return !found
		}
		if r.flaws.addAppends {
			i = len(w.Edges)
		}
		w.Edges = slices.Insert(w.Edges, i, e)
		if r.flaws.floorIsTime && !complete && e.Compare(w.Floor) < 0 {
			w.Floor = e
		}
		return true
	}
	remove := func(e cache.Edge) bool {
		if !covered(e) {
			return true
		}
		i, found := slices.BinarySearchFunc(w.Edges, e, cache.Edge.Compare)
		if found {
			w.Edges = slices.Delete(w.Edges, i, i+1)
		}
		return found
	}
	fits := false
	switch op[0] {
	case opAdd:
		fits = add(edge)
		w.Total++
	case opRemove:
		fits = remove(edge)
		w.Total--
	case opMove:
		fits = remove(old) && add(edge)
	}
	if op[1] == 1 {
		w.Props = true
	}
	if n := len(w.Edges) - limit; n > 0 {
		w.Edges = w.Edges[n:]
		w.Floor = w.Edges[0]
	}
	return fits && w.Total <= cache.MaxNumber && uint64(len(w.Edges)) <= w.Total
}

func (r *modelRedis) fill(c *call) reply {
	p, ok := r.keys[c.keys[0]]
	if !ok || p[:8] != c.args[0] || be(c.args[1]) < be(p[8:]) && !r.flaws.fillAnyPosition {
		return one("0")
	}
	if was, ok := r.keys[c.keys[1]]; ok && be(was) >= be(c.args[1]) {
		return one("0")
	}
	r.keys[c.keys[1]] = c.args[1]
	return one("1")
}

func (r *modelRedis) nudge(c *call) reply {
	p, ok := r.keys[c.keys[0]]
	v, there := r.keys[c.keys[1]]
	if !ok || !there || p[:8] != c.args[0] {
		return one("0")
	}
	op, prev := c.args[4], be(c.args[1])
	e := max(be(p[8:]), be(v))
	if e >= be(op) {
		return one("0")
	}
	if prev > e {
		if r.flaws.gapDrops {
			delete(r.keys, c.keys[1])
			return one("2")
		}
		return one("0")
	}
	limit, _ := strconv.Atoi(c.args[2])
	least, _ := strconv.Atoi(c.args[3])
	if prev == 0 && !r.flaws.createAdds {
		if op[8] != opAdd {
			return one("0")
		}
		w := &cache.Window{Total: 1, Edges: []cache.Edge{decodeEdge([]byte(op[10:]))}, Props: op[9] == 1, Floor: decodeEdge(bytes.Repeat([]byte{0}, 16))}
		r.keys[c.keys[1]] = encodeEntry(&cache.Entry{At: cache.Position{Number: be(op)}, Window: w})
		return one("1")
	}
	if v, ok = r.apply(v, 'l', op, limit, least); !ok {
		delete(r.keys, c.keys[1])
		return one("2")
	}
	r.keys[c.keys[1]] = v
	return one("1")
}
