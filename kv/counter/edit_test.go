package counter

import (
	"fmt"
	"math"
	"math/rand"
	"testing"
)

func (r *rig) edit(e Edit, now int64) Edited {
	r.t.Helper()
	out, err := r.Edit(e, at(now))
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func TestEditsAnswerWhatTheCounterWas(t *testing.T) {
	r := newRig(t, testConfig())
	c := ref(1, 3)
	two := Counter{Value: 2, Exists: true}
	for i, step := range []struct {
		edit Edit
		want Edited
	}{
		{Edit{Kind: Look}, Edited{Outcome: Applied}},
		{Edit{Kind: Remove}, Edited{Outcome: Applied}},
		{Edit{Kind: Add, Value: 2}, Edited{Value: 2, Outcome: Applied, Changed: true}},
		{Edit{Kind: Add, Value: 4, Schema: atMost(5)}, Edited{Before: two, Value: 2, Outcome: Capped}},
		{Edit{Kind: Add, Value: math.MaxInt64}, Edited{Before: two, Value: 2, Outcome: Overflow}},
		{Edit{Kind: Put, Value: 6, Schema: atMost(5)}, Edited{Before: two, Value: 2, Outcome: Capped}},
		{Edit{Kind: Look}, Edited{Before: two, Value: 2, Outcome: Applied}},
		{Edit{Kind: Put, Value: 2}, Edited{Before: two, Value: 2, Outcome: Applied, Changed: true}},
		{Edit{Kind: Remove}, Edited{Before: two, Outcome: Applied, Changed: true}},
		{Edit{Kind: Expire, ExpireAt: 9 * sec}, Edited{Outcome: Held}},
	} {
		step.edit.Ref = c
		if got := r.edit(step.edit, sec); got != step.want {
			t.Fatalf("step %d: %+v, want %+v", i, got, step.want)
		}
	}
	r.cut()
	if dump := r.dump(); dump != "" {
		t.Fatalf("left behind:\n%s", dump)
	}
}

func TestConditionsOfEdits(t *testing.T) {
	absent, lasting, expiring := Counter{}, Counter{Value: 7, Exists: true}, Counter{Value: 7, Exists: true, ExpireAt: 50 * sec}
	for _, c := range []struct {
		name string
		kind EditKind
		cond Condition
		at   int64
		// what it is then for each of the three
		absent, lasting, expiring bool
	}{
		{"put", Put, 0, 0, true, true, true},
		{"put if absent", Put, IfAbsent, 0, true, false, false},
		{"put if present", Put, IfPresent, 0, false, true, true},
		{"expire", Expire, 0, 60 * sec, false, true, true},
		{"expire if lasting", Expire, IfLasting, 60 * sec, false, true, false},
		{"expire if expiring", Expire, IfExpiring, 60 * sec, false, false, true},
		{"expire if later, later", Expire, IfLater, 60 * sec, false, false, true},
		{"expire if later, same", Expire, IfLater, 50 * sec, false, false, false},
		{"expire if earlier, same", Expire, IfEarlier, 50 * sec, false, true, false},
		{"expire if earlier, earlier", Expire, IfEarlier, 40 * sec, false, true, true},
		{"expire if expiring and earlier", Expire, IfExpiring | IfEarlier, 40 * sec, false, false, true},
		{"persist", Expire, IfExpiring, 0, false, false, true},
	} {
		for i, was := range []Counter{absent, lasting, expiring} {
			r := newRig(t, testConfig())
			x := ref(4, 0)
			if was.Exists {
				r.edit(Edit{Ref: x, Kind: Put, Value: was.Value, ExpireAt: was.ExpireAt}, sec)
			}
			got := r.edit(Edit{Ref: x, Kind: c.kind, If: c.cond, Value: 8, ExpireAt: c.at}, 2*sec)
			want := []bool{c.absent, c.lasting, c.expiring}[i]
			if got.Changed != want || (got.Outcome == Applied) != want || got.Before != was {
				t.Errorf("%s of %+v: %+v, want applied=%v", c.name, was, got, want)
			}
			after := was
			if want {
				after = Counter{Value: 7, Exists: true, ExpireAt: c.at}
				if c.kind == Put {
					after.Value = 8
				}
			}
			r.restart()
			r.wantValue(x, 3*sec, after)
		}
	}
}

func TestExpiryOfEdits(t *testing.T) {
	r := newRig(t, testConfig())
	c := ref(1, 0)
	r.edit(Edit{Ref: c, Kind: Put, Value: 1, ExpireAt: 5 * sec}, sec)
	r.edit(Edit{Ref: c, Kind: Add, Value: 1}, sec)
	r.wantValue(c, sec, Counter{Value: 2, Exists: true, ExpireAt: 5 * sec}) // stays
	r.edit(Edit{Ref: c, Kind: Put, Value: 9, Keep: true}, sec)
	r.wantValue(c, sec, Counter{Value: 9, Exists: true, ExpireAt: 5 * sec})
	r.edit(Edit{Ref: c, Kind: Put, Value: 9}, sec)
	r.wantValue(c, sec, Counter{Value: 9, Exists: true})
	if got := r.edit(Edit{Ref: c, Kind: Expire, ExpireAt: 2 * sec}, 2*sec); !got.Changed || got.Value != 0 {
		t.Fatalf("an expiry that has come: %+v", got)
	}
	r.wantValue(c, 2*sec, Counter{})
	if got := r.edit(Edit{Ref: c, Kind: Put, Value: 1, ExpireAt: sec}, 2*sec); got.Changed || got.Outcome != Applied {
		t.Fatalf("put with an expiry that has come, of an absent one: %+v", got)
	}
	r.edit(Edit{Ref: c, Kind: Put, Value: 1, ExpireAt: 4 * sec}, 2*sec)
	if got := r.edit(Edit{Ref: c, Kind: Add, Value: 1}, 4*sec); got.Value != 1 || got.Before.Exists {
		t.Fatalf("add past the expiry: %+v", got)
	}
	r.restart()
	r.wantValue(c, 99*sec, Counter{Value: 1, Exists: true})
}

// Random edits against a map, with cuts and restarts between, each kind and condition.
func TestEditsFollowTheModel(t *testing.T) {
	seed := rand.Int63()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewSource(seed))
	r := newRig(t, testConfig())
	model := map[string]Counter{}
	kinds := []EditKind{Look, Add, Put, Remove, Expire}
	conds := []Condition{0, 0, IfAbsent, IfPresent, IfLasting, IfExpiring, IfLater, IfEarlier, IfExpiring | IfLater}
	for now := sec; now < 3000*sec; now += rnd.Int63n(sec) {
		e := Edit{
			Ref: ref(rnd.Intn(6), uint16(rnd.Intn(2))), Kind: kinds[rnd.Intn(len(kinds))], If: conds[rnd.Intn(len(conds))],
			Value: rnd.Int63n(9) - 4, Keep: rnd.Intn(3) == 0, Schema: Bounds{Min: -9, HasMin: true},
		}
		if rnd.Intn(2) == 0 {
			e.ExpireAt = now + rnd.Int63n(8*sec) - 2*sec
		}
		key := fmt.Sprint(e.Row, e.Field)
		was := model[key]
		if was.ExpireAt != 0 && was.ExpireAt <= now {
			was = Counter{}
		}
		want := modelEdit(was, e, now)
		got := r.edit(e, now)
		if got.Before != was {
			t.Fatalf("%+v at %d: before %+v, want %+v", e, now, got.Before, was)
		}
		model[key] = want
		switch rnd.Intn(20) {
		case 0:
			r.restart()
		case 1, 2:
			r.cut()
		}
		r.wantValue(e.Ref, now, want)
	}
}

// modelEdit is what an edit should leave.
func modelEdit(c Counter, e Edit, now int64) Counter {
	switch {
	case e.If&IfAbsent != 0 && c.Exists, e.If&IfPresent != 0 && !c.Exists,
		e.If&(IfLasting|IfExpiring) != 0 && !c.Exists,
		e.If&IfLasting != 0 && c.ExpireAt != 0, e.If&IfExpiring != 0 && c.ExpireAt == 0,
		e.If&IfLater != 0 && (c.ExpireAt == 0 || e.ExpireAt <= c.ExpireAt),
		e.If&IfEarlier != 0 && c.ExpireAt != 0 && e.ExpireAt >= c.ExpireAt:
		return c
	}
	switch e.Kind {
	case Add:
		if c.Value+e.Value >= -9 {
			c.Value, c.Exists = c.Value+e.Value, true
		}
	case Put:
		c.Value, c.Exists = e.Value, true
		if !e.Keep {
			c.ExpireAt = e.ExpireAt
		}
	case Remove:
		return Counter{}
	case Expire:
		if c.Exists {
			c.ExpireAt = e.ExpireAt
		}
	}
	if c.ExpireAt != 0 && c.ExpireAt <= now {
		return Counter{}
	}
	return c
}
