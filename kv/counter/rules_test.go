package counter

import (
	"fmt"
	"testing"
	"time"
)

const hour = 3600 * sec

// Schedule 36: the leader's clock is an hour ahead for one entry, so log time
// jumps and then stands still for an hour.
func TestRuleE1ClockJumpDoesNotForgetRequestIDs(t *testing.T) {
	r := newRig(t, testConfig())
	in := Increment{Ref: ref(1, 0), Delta: 1, RequestID: "a"}
	now := 100 * hour
	r.want(in, Clock{Now: now, Elapsed: 10 * sec}, "1 applied")
	r.want(Increment{Ref: ref(1, 0), Delta: 1}, Clock{Now: now + hour, Elapsed: 11 * sec}, "2 applied")
	r.restart()
	r.want(in, Clock{Now: now + hour, Elapsed: 12 * sec}, "1 applied again")

	// The dedupe clock goes on while log time stands still: ids are forgotten and
	// do not fill the table.
	end := 10*sec + 600*sec
	r.want(in, Clock{Now: now + hour, Elapsed: end - 1}, "1 applied again")
	r.want(in, Clock{Now: now + hour, Elapsed: end}, "3 applied")
}

// A UUID that tells its time is not refused while its answer is remembered, even
// when log time has jumped past its window.
func TestRuleE1ClockJumpAnswersAKnownUUID(t *testing.T) {
	r := newRig(t, testConfig())
	now := int64(1_700_000_000) * sec
	known := Increment{Ref: ref(1, 0), Delta: 1, RequestID: uuidAt(now)}
	r.want(known, Clock{Now: now}, "1 applied")
	r.want(known, Clock{Now: now + hour, Elapsed: sec}, "1 applied again")
}

// Schedule 37, first half: the retry goes to the child of a split, which finds the
// rows of its slots and answers.
func TestRuleE2SplitInheritsRequestIDs(t *testing.T) {
	cfg := testConfig()
	r := newRig(t, cfg)
	low, high := ref(1, 0), ref(6, 0)
	for _, c := range []Ref{low, high} {
		r.want(Increment{Ref: c, Delta: 5, RequestID: "a"}, at(sec), "5 applied")
		r.want(Increment{Ref: c, Delta: 1, ExpireAt: 9 * sec}, at(sec), "6 applied")
	}
	r.cut()
	for _, half := range []struct{ first, end uint16 }{{0, 4}, {4, 8}} {
		cfg.FirstSlot, cfg.EndSlot = half.first, half.end
		child := &rig{t: t, cfg: cfg, store: r.store}
		child.reopen()
		mine, other := low, high
		if half.first == 4 {
			mine, other = high, low
		}
		child.want(Increment{Ref: mine, Delta: 5, RequestID: "a"}, at(2*sec), "5 applied again")
		if child.NextExpiry() != 9*sec {
			t.Fatalf("child expires next at %d", child.NextExpiry())
		}
		if _, err := child.Incr(Increment{Ref: other, Delta: 1}, at(2*sec)); err == nil {
			t.Fatal("a child took an increment of the other's slot")
		}
	}
}

// Schedule 37, second half: a full table refuses new ids and evicts none.
func TestRuleE2FullTableRefusesAndNeverForgetsEarly(t *testing.T) {
	cfg := testConfig()
	cfg.MaxAnswers = 20
	r := newRig(t, cfg)
	request := func(i int) Increment {
		return Increment{Ref: ref(1, 0), Delta: 1, RequestID: fmt.Sprint("id", i)}
	}
	for i := range 20 {
		r.want(request(i), at(int64(i)), fmt.Sprintf("%d applied", i+1))
	}
	r.restart()
	r.want(request(20), at(100), "0 too many request ids within the window")
	for i := range 20 {
		r.want(request(i), at(600*sec-1), fmt.Sprintf("%d applied again", i+1))
	}
	r.want(Increment{Ref: ref(1, 0), Delta: 1}, at(600*sec-1), "21 applied")
	r.want(Increment{Ref: ref(2, 0), Delta: 1, RequestID: "id20"}, at(600*sec-1), "1 applied")
	// The oldest leaves its window: there is room for one, not for two.
	r.want(request(20), at(600*sec), "22 applied")
	r.want(request(21), at(600*sec), "0 too many request ids within the window")
	// Each operation forgets a few: the table gets empty faster than it fills.
	for i := range 5 {
		r.want(request(30+i), at(3000*sec), fmt.Sprintf("%d applied", 23+i))
	}
	r.restart()
	r.check()
	if n := r.answers.counts[1]; n != unread {
		t.Fatalf("count of a slot just opened: %d", n)
	}
	if err := r.answers.count(1, 0); err != nil || r.answers.counts[1] != 5 {
		t.Fatalf("%d answers are left, want the 5 new ones (%v)", r.answers.counts[1], err)
	}
}

// Schedule 37, third half: sums are formed after dedupe and caps, one answer each.
func TestRuleE2IncrementsOfOneCutKeepTheirOwnAnswers(t *testing.T) {
	r := newRig(t, testConfig())
	c := ref(1, 0)
	with := func(id string, ordinal uint32, delta int64) Increment {
		return Increment{Ref: c, Delta: delta, RequestID: id, Ordinal: ordinal, Caps: atMost(5)}
	}
	clk := at(sec)
	for range 2 {
		again := ""
		if clk.Now > sec {
			again = " again"
		}
		r.want(with("a", 0, 3), clk, "3 applied"+again)
		r.want(with("a", 1, 3), clk, "3 capped"+again)
		r.want(with("b", 0, 2), clk, "5 applied"+again)
		r.want(with("a", 0, 3), clk, "3 applied again")
		r.want(with("a", 0, 2), clk, "0 request_id was used with other arguments")
		r.restart()
		clk = at(2 * sec)
	}
	// What a cap refused stays refused for that id, though there is room now.
	r.want(Increment{Ref: c, Delta: -5}, clk, "0 applied")
	r.want(with("a", 1, 3), clk, "3 capped again")
}

func TestRuleE2OverflowIsRemembered(t *testing.T) {
	r := newRig(t, testConfig())
	c := ref(1, 0)
	big := Increment{Ref: c, Delta: 1 << 62, RequestID: "a", Ordinal: 1}
	r.want(Increment{Ref: c, Delta: 1 << 62}, at(1), "4611686018427387904 applied")
	r.want(big, at(1), "4611686018427387904 overflow")
	r.want(Increment{Ref: c, Delta: -1 << 62}, at(1), "0 applied")
	r.restart()
	r.want(big, at(2), "4611686018427387904 overflow again")
}

func TestRuleE2OldUUIDIsRefused(t *testing.T) {
	r := newRig(t, testConfig())
	now := int64(1_700_000_000) * sec
	clk := Clock{Now: now, Elapsed: 5} // the age is told by log time
	in := Increment{Ref: ref(1, 0), Delta: 1, RequestID: uuidAt(now - 601*sec)}
	r.want(in, clk, "0 request_id is older than the window")
	in.RequestID = uuidAt(now - 599*sec)
	r.want(in, clk, "1 applied")
	r.want(in, clk, "1 applied again")
	r.want(in, Clock{Now: now + 2*sec, Elapsed: 6}, "1 applied again")
}

func TestRuleE2EveryArgumentCounts(t *testing.T) {
	first := Increment{Ref: ref(1, 0), Delta: 1, RequestID: "a", Caps: Bounds{Max: 9, HasMax: true}, ExpireAt: 9 * hour}
	for i, change := range []func(in *Increment){
		func(in *Increment) { in.Row = ref(9, 0).Row },
		func(in *Increment) { in.Field = 1 },
		func(in *Increment) { in.Delta = 2 },
		func(in *Increment) { in.ExpireAt++ },
		func(in *Increment) { in.ExpireAt = 0 },
		func(in *Increment) { in.Caps.Max = 8 },
		func(in *Increment) { in.Caps.HasMax = false },
		func(in *Increment) { in.Caps.HasMin = true },
		func(in *Increment) { in.Caps.Min = -1 },
	} {
		r := newRig(t, testConfig())
		r.want(first, at(1), "1 applied")
		other := first
		change(&other)
		r.want(other, at(2), "0 request_id was used with other arguments")
		other.RequestID = fmt.Sprint("b", i)
		if res := r.incr(other, at(2)); res.Repeated || res.Outcome != Applied {
			t.Errorf("change %d under its own id: %+v", i, res)
		}
	}
	// The schema's bounds are not the client's: a retry after they changed is a retry.
	r := newRig(t, testConfig())
	r.want(first, at(1), "1 applied")
	first.Schema = atMost(0)
	r.want(first, at(2), "1 applied again")
}

func uuidAt(µs int64) string {
	ms := uint64(µs / 1000)
	return fmt.Sprintf("%08x-%04x-7abc-8def-0123456789ab", ms>>16, ms&0xffff)
}

// Schedule 38: on an idle shard log time stands still. What expires there is told
// to the leader, which proposes a sweep; once expired it stays so after a restart.
func TestRuleE3IdleShardExpiresByTheTick(t *testing.T) {
	r := newRig(t, testConfig())
	c := ref(1, 0)
	if r.NextExpiry() != Never {
		t.Fatal("an empty state expires something")
	}
	r.want(Increment{Ref: c, Delta: 3, ExpireAt: sec + 100_000}, at(sec), "3 applied")
	r.restart()
	r.wantValue(c, sec, Counter{Value: 3, Exists: true, ExpireAt: sec + 100_000})
	if r.NextExpiry() != sec+100_000 {
		t.Fatalf("next expiry at %d", r.NextExpiry())
	}
	r.wantValue(c, sec+99_999, Counter{Value: 3, Exists: true, ExpireAt: sec + 100_000})
	r.wantValue(c, sec+100_000, Counter{})
	n, err := r.Sweep(at(sec+100_000), 10)
	if n != 1 || err != nil {
		t.Fatalf("the sweep removed %d (%v)", n, err)
	}
	r.restart()
	r.wantValue(c, 0, Counter{}) // gone whatever the clock of the reader
	if r.NextExpiry() != Never || r.dump() != "" {
		t.Fatalf("left behind, next at %d:\n%s", r.NextExpiry(), r.dump())
	}
}

func TestRuleE3CounterStartsAnewAfterItsExpiry(t *testing.T) {
	r := newRig(t, testConfig())
	c, cap5 := ref(1, 0), atMost(5)
	day := func(n int64) int64 { return n * 24 * hour }
	like := func(now, ends int64, want string) {
		t.Helper()
		r.want(Increment{Ref: c, Delta: 1, Caps: cap5, ExpireAt: ends}, at(now), want)
	}
	for i := range 5 {
		like(day(1)+int64(i), day(2), fmt.Sprintf("%d applied", i+1))
	}
	like(day(2)-1, day(2), "5 capped")
	like(day(2), day(2), "0 expire_at lies in the past")
	like(day(2), day(3), "1 applied")
	like(day(2)+1, day(9), "2 applied") // keeps the expiry it has
	r.wantValue(c, day(2)+1, Counter{Value: 2, Exists: true, ExpireAt: day(3)})
	r.restart()
	r.want(Increment{Ref: c, Delta: 1}, at(day(3)), "1 applied")
	r.wantValue(c, day(99), Counter{Value: 1, Exists: true})
	r.cut()
	r.check()
}

// Rule C4: a derived metric at 0 is absent, may be below 0 on the way, and shares
// its row with others.
func TestRuleC4DerivedMetricVanishesAtZero(t *testing.T) {
	r := newRig(t, testConfig())
	derived, plain := ref(1, 3), ref(1, 0)
	for _, step := range []struct{ delta, want int64 }{{-100, -100}, {+150, 50}, {-50, 0}} {
		got, err := r.ApplyDerived(derived, step.delta)
		if err != nil || got != step.want {
			t.Fatalf("%+d gave %d (%v), want %d", step.delta, got, err, step.want)
		}
		r.restart()
	}
	if dump := r.dump(); dump != "" {
		t.Fatalf("a row is left:\n%s", dump)
	}
	r.want(Increment{Ref: plain, Delta: 0}, at(1), "0 applied")
	if _, err := r.ApplyDerived(derived, 2); err != nil {
		t.Fatal(err)
	}
	r.cut()
	if _, err := r.ApplyDerived(derived, -2); err != nil {
		t.Fatal(err)
	}
	r.restart()
	r.wantValue(derived, 1, Counter{})
	r.wantValue(plain, 1, Counter{Exists: true})
}

// Case 17: entries replayed after a crash start from the last cut.
func TestReplayFromTheLastCutCountsOnce(t *testing.T) {
	r := newRig(t, testConfig())
	total := int64(0)
	for total < 1000 {
		for i := range 7 { // lost with the process, then played again
			r.incr(Increment{Ref: ref(1, 0), Delta: 1}, at(total+int64(i)))
		}
		r.reopen()
		for range 10 {
			total++
			r.want(Increment{Ref: ref(1, 0), Delta: 1}, at(total), fmt.Sprintf("%d applied", total))
		}
		r.cut()
	}
}

func TestTouchRemovesOnlyAFewOfItsSlot(t *testing.T) {
	cfg := testConfig()
	cfg.Window = time.Second
	cfg.Overdue = -1
	r := newRig(t, cfg)
	for i := range 30 { // all in slot 1
		r.incr(Increment{Ref: ref(1+8*i, 0), Delta: 1, ExpireAt: 2 * sec, RequestID: fmt.Sprint(i)}, at(sec))
	}
	r.incr(Increment{Ref: ref(2, 0), Delta: 1, ExpireAt: 2 * sec, RequestID: "x"}, at(sec))
	r.restart()
	r.incr(Increment{Ref: ref(1, 5), Delta: 1}, at(5*sec))
	if n, err := r.Sweep(at(5*sec), 5); n != 10 || err != nil { // 5 of each kind
		t.Fatalf("the sweep removed %d (%v)", n, err)
	}
	removed, err := r.Sweep(at(5*sec), 1000)
	if want := 31 - expirePerTouch - 5 + 31 - forgetPerTouch - 5; removed != want || err != nil {
		t.Fatalf("%d were left to the sweep, want %d (%v)", removed, want, err)
	}
	r.cut()
	r.check()
	if r.NextExpiry() != Never || r.NextForget() != Never {
		t.Fatalf("next expiry %d, next forgetting %d", r.NextExpiry(), r.NextForget())
	}
}

// Replicas that have read different things before must sweep the same: which
// entry is oldest is in the rows, not in the bounds.
func TestSweepDependsOnTheRowsAlone(t *testing.T) {
	dumps := map[bool]string{}
	for _, restarted := range []bool{false, true} {
		r := newRig(t, testConfig())
		r.incr(Increment{Ref: ref(5, 0), Delta: 1, ExpireAt: 10}, at(1)) // makes a low bound in slot 5
		r.incr(Increment{Ref: ref(13, 0), Delta: 1, ExpireAt: 40}, at(1))
		r.incr(Increment{Ref: ref(6, 0), Delta: 1, ExpireAt: 30}, at(1))
		if _, err := r.Delete(ref(5, 0), at(2)); err != nil {
			t.Fatal(err)
		}
		r.cut()
		if restarted {
			r.reopen()
		}
		if n, err := r.Sweep(at(50), 1); n != 1 || err != nil {
			t.Fatalf("removed %d (%v)", n, err)
		}
		r.cut()
		dumps[restarted] = r.dump()
		r.wantValue(ref(6, 0), 1, Counter{})
	}
	if dumps[true] != dumps[false] {
		t.Fatalf("restarted:\n%s\nnot:\n%s", dumps[true], dumps[false])
	}
}

// What has just come is left to Sweep, which removes it at less cost.
func TestTouchLeavesWhatIsNotOverdue(t *testing.T) {
	r := newRig(t, testConfig())
	r.incr(Increment{Ref: ref(1, 0), Delta: 1, ExpireAt: 700 * sec, RequestID: "a"}, Clock{Now: sec, Elapsed: 100 * sec})
	touch := func(clk Clock, expiry, forget int64) {
		t.Helper()
		r.incr(Increment{Ref: ref(9, 0), Delta: 1}, clk)
		if r.NextExpiry() != expiry || r.NextForget() != forget {
			t.Fatalf("at %+v: next expiry %d, next forgetting %d", clk, r.NextExpiry(), r.NextForget())
		}
	}
	touch(Clock{Now: 705*sec - 1, Elapsed: 705*sec - 1}, 700*sec, 700*sec)
	r.wantValue(ref(1, 0), 705*sec-1, Counter{})
	touch(Clock{Now: 705 * sec, Elapsed: 705*sec - 1}, Never, 700*sec)
	touch(Clock{Now: 705 * sec, Elapsed: 705 * sec}, Never, Never)
}

// The same for a touch: a bound that is too low must not make it begin early on
// the replica that has it.
func TestTouchDependsOnTheRowsAlone(t *testing.T) {
	dumps := map[bool]string{}
	for _, restarted := range []bool{false, true} {
		r := newRig(t, testConfig())
		r.incr(Increment{Ref: ref(1, 0), Delta: 1, ExpireAt: 10 * sec}, at(sec))
		r.incr(Increment{Ref: ref(9, 0), Delta: 1, ExpireAt: 14 * sec}, at(sec))
		if _, err := r.Delete(ref(1, 0), at(2*sec)); err != nil {
			t.Fatal(err)
		}
		r.cut()
		if restarted {
			r.reopen()
		}
		r.incr(Increment{Ref: ref(17, 0), Delta: 1}, at(16*sec)) // 14 s: come, not overdue
		r.cut()
		dumps[restarted] = r.dump()
	}
	if dumps[true] != dumps[false] {
		t.Fatalf("restarted:\n%s\nnot:\n%s", dumps[true], dumps[false])
	}
}
