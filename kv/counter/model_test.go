package counter

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// model is the counters as one would write them with no store, no cuts and no
// indexes: what State must answer.
type model struct {
	window, limit int64
	overdue       int64
	counters      map[string]*Counter
	answers       map[uint16][]modelAnswer // by slot, in the order of forgetting
}

type modelAnswer struct {
	id      string
	ordinal uint32
	args    string
	elapsed int64
	res     Result
}

func newModel(cfg Config) *model {
	return &model{
		window: cfg.Window.Microseconds(), limit: int64(cfg.MaxAnswers), overdue: cfg.Overdue.Microseconds(),
		counters: map[string]*Counter{}, answers: map[uint16][]modelAnswer{},
	}
}

func (m *model) at(r Ref, now int64) *Counter {
	c := m.counters[r.String()]
	if c == nil || (c.ExpireAt != 0 && c.ExpireAt <= now) {
		c = &Counter{}
		m.counters[r.String()] = c
	}
	return c
}

// touch forgets a few answers of slot where the oldest is overdue.
func (m *model) touch(slot uint16, elapsed, overdue int64) {
	until := elapsed - m.window
	if l := m.answers[slot]; len(l) > 0 && l[0].elapsed <= until-overdue {
		m.forget(slot, until, forgetPerTouch)
	}
}

func (m *model) forget(slot uint16, until int64, limit int) (n int) {
	list := m.answers[slot]
	for n < len(list) && n < limit && list[n].elapsed <= until {
		n++
	}
	m.answers[slot] = list[n:]
	return n
}

func (m *model) incr(in Increment, clk Clock) Result {
	m.touch(in.Slot, clk.Elapsed, m.overdue)
	if in.RequestID == "" {
		return m.add(in, clk.Now)
	}
	args := fmt.Sprint(in.Ref, in.Delta, in.Caps, in.ExpireAt)
	list := m.answers[in.Slot]
	if i := slices.IndexFunc(list, func(a modelAnswer) bool { return a.id == in.RequestID && a.ordinal == in.Ordinal }); i >= 0 {
		if a := list[i]; a.elapsed+m.window > clk.Elapsed {
			if a.args != args {
				return Result{Outcome: IDReused}
			}
			a.res.Repeated = true
			return a.res
		}
		list = slices.Delete(slices.Clone(list), i, i+1)
		m.answers[in.Slot] = list
	}
	if int64(len(list)) >= m.limit {
		m.touch(in.Slot, clk.Elapsed, 0)
		if list = m.answers[in.Slot]; int64(len(list)) >= m.limit {
			return Result{Outcome: DedupeFull}
		}
	}
	res := m.add(in, clk.Now)
	if res.Outcome == Applied || res.Outcome == Capped || res.Outcome == Overflow {
		list = append(slices.Clone(list), modelAnswer{in.RequestID, in.Ordinal, args, clk.Elapsed, res})
		slices.SortStableFunc(list, func(a, b modelAnswer) int {
			ka := fmt.Sprintf("%020d %03d %s %010d", a.elapsed, len(a.id), a.id, a.ordinal)
			kb := fmt.Sprintf("%020d %03d %s %010d", b.elapsed, len(b.id), b.id, b.ordinal)
			return compareStrings(ka, kb)
		})
		m.answers[in.Slot] = list
	}
	return res
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (m *model) add(in Increment, now int64) Result {
	c := m.at(in.Ref, now)
	if in.ExpireAt != 0 && in.ExpireAt <= now {
		return Result{Value: c.Value, Outcome: ExpirePast}
	}
	sum := new(big.Int).Add(big.NewInt(c.Value), big.NewInt(in.Delta))
	for _, b := range []Bounds{in.Caps, in.Schema} {
		if b.HasMin && sum.Cmp(big.NewInt(b.Min)) < 0 || b.HasMax && sum.Cmp(big.NewInt(b.Max)) > 0 {
			return Result{Value: c.Value, Outcome: Capped}
		}
	}
	if !sum.IsInt64() {
		return Result{Value: c.Value, Outcome: Overflow}
	}
	c.Value, c.Exists = sum.Int64(), true
	if c.ExpireAt == 0 {
		c.ExpireAt = in.ExpireAt
	}
	return Result{Value: c.Value, Outcome: Applied}
}

func (m *model) set(a Assignment, clk Clock) Outcome {
	m.touch(a.Slot, clk.Elapsed, m.overdue)
	switch {
	case a.ExpireAt != 0 && a.ExpireAt <= clk.Now:
		return ExpirePast
	case a.Schema.HasMin && a.Value < a.Schema.Min, a.Schema.HasMax && a.Value > a.Schema.Max:
		return Capped
	}
	*m.at(a.Ref, clk.Now) = Counter{Value: a.Value, Exists: true, ExpireAt: a.ExpireAt}
	return Applied
}

func (m *model) delete(r Ref, clk Clock) bool {
	m.touch(r.Slot, clk.Elapsed, m.overdue)
	c := m.at(r, clk.Now)
	existed := c.Exists
	*c = Counter{}
	return existed
}

func (m *model) derive(r Ref, delta int64) int64 {
	c := m.at(r, 0)
	c.Value += delta
	c.Exists = c.Value != 0
	return c.Value
}

// op is one operation of a run, made once and played on State and model.
type op struct {
	kind  int
	clk   Clock
	in    Increment
	value int64
}

const (
	opIncr = iota
	opSet
	opDelete
	opGet
	opDerive
	opSweep
	opKinds
)

func randomOps(rng *rand.Rand, n int) []op {
	var clk Clock
	ops := make([]op, n)
	deltas := []int64{1, 1, 1, -1, 2, 5, 0, math.MaxInt64, math.MinInt64, math.MaxInt64 - 3}
	for i := range ops {
		step := rng.Int64N(40)
		clk.Elapsed += step
		clk.Now += step
		if rng.IntN(50) == 0 {
			clk.Now += 2000 // the log clock jumps, the dedupe clock does not
		}
		o := op{kind: rng.IntN(opKinds), clk: clk, value: rng.Int64N(20) - 5}
		if rng.IntN(2) == 0 {
			o.kind = opIncr
		}
		o.in = Increment{Ref: ref(rng.IntN(16), uint16(rng.IntN(3)*5)), Delta: deltas[rng.IntN(len(deltas))]}
		if rng.IntN(3) == 0 {
			o.in.Caps = Bounds{Max: rng.Int64N(12), HasMax: true, Min: -2, HasMin: rng.IntN(2) == 0}
		}
		if rng.IntN(4) == 0 {
			o.in.Schema = Bounds{Max: 8, HasMax: true}
		}
		if rng.IntN(3) == 0 {
			o.in.ExpireAt = max(0, clk.Now+rng.Int64N(500)-40)
		}
		if rng.IntN(2) == 0 {
			o.in.RequestID = "r" + strconv.Itoa(rng.IntN(40))
			o.in.Ordinal = uint32(rng.IntN(2))
			if rng.IntN(3) == 0 { // often the same arguments
				o.in = Increment{Ref: ref(len(o.in.RequestID), 0), Delta: 1, RequestID: o.in.RequestID}
			}
		}
		if o.kind == opDerive {
			o.in.Field = 9
		}
		ops[i] = o
	}
	return ops
}

func (o op) String() string {
	in := o.in
	return fmt.Sprintf("kind %d at %+v: %v delta %d caps %+v schema %+v expire %d id %q/%d value %d",
		o.kind, o.clk, in.Ref, in.Delta, in.Caps, in.Schema, in.ExpireAt, in.RequestID, in.Ordinal, o.value)
}

// play runs o and returns the answer as text.
func (o op) play(s *State) (string, error) {
	switch o.kind {
	case opSet:
		got, err := s.Set(Assignment{Ref: o.in.Ref, Value: o.value, Schema: o.in.Schema, ExpireAt: o.in.ExpireAt}, o.clk)
		return got.String(), err
	case opDelete:
		got, err := s.Delete(o.in.Ref, o.clk)
		return fmt.Sprint(got), err
	case opGet:
		got, err := s.Get(o.in.Ref, o.clk.Now)
		return fmt.Sprintf("%+v", got), err
	case opDerive:
		got, err := s.ApplyDerived(o.in.Ref, o.value)
		return fmt.Sprint(got), err
	case opSweep:
		_, err := s.Sweep(o.clk, int(o.value+6))
		return "", err
	}
	got, err := s.Incr(o.in, o.clk)
	return fmt.Sprintf("%+v", got), err
}

func (o op) expect(m *model) string {
	switch o.kind {
	case opSet:
		return m.set(Assignment{Ref: o.in.Ref, Value: o.value, Schema: o.in.Schema, ExpireAt: o.in.ExpireAt}, o.clk).String()
	case opDelete:
		return fmt.Sprint(m.delete(o.in.Ref, o.clk))
	case opGet:
		return fmt.Sprintf("%+v", *m.at(o.in.Ref, o.clk.Now))
	case opDerive:
		return fmt.Sprint(m.derive(o.in.Ref, o.value))
	case opSweep:
		m.sweep(o.clk.Elapsed-m.window, int(o.value+6))
		return ""
	}
	return fmt.Sprintf("%+v", m.incr(o.in, o.clk))
}

// sweep forgets the oldest answers of all slots, slot by slot from the oldest.
func (m *model) sweep(until int64, limit int) {
	for limit > 0 {
		oldest, found := uint16(0), false
		for slot := range uint16(8) {
			if l := m.answers[slot]; len(l) > 0 && l[0].elapsed <= until &&
				(!found || l[0].elapsed < m.answers[oldest][0].elapsed) {
				oldest, found = slot, true
			}
		}
		if !found {
			return
		}
		limit -= m.forget(oldest, until, limit)
	}
}

// cadence says after how many operations a run cuts, and what it does then.
type cadence struct {
	name      string
	every     func(rng *rand.Rand) int
	restart   bool // rebuild the State after each cut
	crash     bool // now and then lose what was not cut and play it again
	cacheRows int
}

func cadences() []cadence {
	fixed := func(n int) func(*rand.Rand) int { return func(*rand.Rand) int { return n } }
	some := func(rng *rand.Rand) int { return 1 + rng.IntN(60) }
	return []cadence{
		{name: "one cut at the end", every: fixed(1 << 30)},
		{name: "each operation", every: fixed(1), cacheRows: 2},
		{name: "restart after each operation", every: fixed(1), restart: true},
		{name: "some, tiny cache", every: some, cacheRows: 4},
		{name: "some, restart", every: some, restart: true},
		{name: "some, crash", every: some, crash: true},
	}
}

// run plays ops with the cadence, compares each answer with want and returns the
// store's rows.
func (c cadence) run(t *testing.T, cfg Config, seed uint64, ops []op, want []string) string {
	cfg.CacheRows = c.cacheRows
	r := newRig(t, cfg)
	rng := rand.New(rand.NewPCG(seed, 7))
	cut, next := 0, c.every(rng)
	for i := 0; i < len(ops); i++ {
		got, err := ops[i].play(r.State)
		if err != nil {
			t.Fatalf("seed %d, %s, operation %d: %v: %v", seed, c.name, i, ops[i], err)
		}
		if got != want[i] {
			t.Fatalf("seed %d, %s, operation %d: %v\ngot  %s\nwant %s", seed, c.name, i, ops[i], got, want[i])
		}
		switch {
		case i+1-cut >= next:
			r.cut()
			cut, next = i+1, c.every(rng)
			if c.restart {
				r.reopen()
			}
		case c.crash && rng.IntN(40) == 0:
			r.reopen()
			i = cut - 1
		}
	}
	r.cut()
	r.check()
	return r.dump()
}

func TestAnswersAreTheModelsWhateverTheCutsAndRestarts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	runs := 15
	if os.Getenv("LIANA_LONG") == "1" {
		runs = 4000
	}
	cfg := testConfig()
	cfg.Window = 700 * time.Microsecond
	cfg.MaxAnswers = 6
	cfg.Overdue = 200 * time.Microsecond
	for i := range runs {
		seed := seed + uint64(i)
		// Rows are compared at the end of a run, so there are ends of many kinds.
		rng := rand.New(rand.NewPCG(seed, 1))
		ops := randomOps(rng, 1+rng.IntN(400))
		m := newModel(cfg)
		want := make([]string, len(ops))
		for j, o := range ops {
			want[j] = o.expect(m)
		}
		first := ""
		for _, c := range cadences() {
			dump := c.run(t, cfg, seed, ops, want)
			if first == "" {
				first = dump
			}
			if dump != first {
				t.Fatalf("seed %d: %q leaves other rows than %q:\n%s\nand\n%s", seed, c.name, cadences()[0].name, dump, first)
			}
		}
	}
}

// The random run is worth its name only if it meets what it is about.
func TestRandomRunMeetsEveryOutcome(t *testing.T) {
	cfg := testConfig()
	cfg.Window = 700 * time.Microsecond
	cfg.MaxAnswers = 6
	cfg.Overdue = 200 * time.Microsecond
	r := newRig(t, cfg)
	seen := map[string]int{}
	for _, o := range randomOps(rand.New(rand.NewPCG(1, 1)), 3000) {
		if o.kind != opIncr {
			continue
		}
		res := r.incr(o.in, o.clk)
		if res.Repeated {
			seen["repeated"]++
		}
		seen[res.Outcome.String()]++
	}
	for _, o := range []Outcome{Applied, Capped, Overflow, ExpirePast, DedupeFull, IDReused} {
		if seen[o.String()] < 5 {
			t.Errorf("%v met %d times", o, seen[o.String()])
		}
	}
	if seen["repeated"] < 5 {
		t.Errorf("answers repeated %d times", seen["repeated"])
	}
}
