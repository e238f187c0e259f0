package catalog

import (
	"cmp"
	"slices"
)

// level moves copies from places above their band to places below the top of theirs,
// then from any place above the bottom of its band to those below theirs. Each move
// brings one place nearer to its band and takes none out of it, and as long as there
// is a place below its band the first kind goes there: the moves are as few as
// max(copies above the bands, copies missing below them), unless zones forbid the
// direct ones. Within a zone a direct move always exists: of two places the one with
// more copies has a shard that the other has not.
func (l *layout) level() {
	l.setBands()
	for l.unload() || l.fill() {
	}
}

// unload relieves the places above their band, fullest first, as far as it can, and
// reports whether it moved anything.
func (l *layout) unload() bool {
	return l.relieve(
		func(c *place) int { return len(c.held) - c.hi },
		func(from int) bool {
			return l.each(emptiness, hasRoom, func(to int) bool { return l.shift(from, to) }) || l.unloadBy(from)
		})
}

// fill brings copies to the places below their band, emptiest first.
func (l *layout) fill() bool {
	return l.relieve(
		func(c *place) int { return c.lo - len(c.held) },
		func(to int) bool {
			return l.each(fullness, hasSpare, func(from int) bool { return l.shift(from, to) }) || l.fillBy(to)
		})
}

func emptiness(c *place) int { return len(c.held) - c.lo }
func fullness(c *place) int  { return c.lo - len(c.held) }
func hasRoom(c *place) bool  { return len(c.held) < c.hi }
func hasSpare(c *place) bool { return len(c.held) > c.lo }

// unloadBy relieves a place by way of a third one, where zones forbid the direct move:
// the place between gives one copy to a place that has room, and takes another.
func (l *layout) unloadBy(from int) bool {
	takers := l.bestOfZones(emptiness, hasRoom)
	for between := range l.places {
		if between == from || l.find(from, between) < 0 {
			continue
		}
		for _, to := range takers {
			if l.shift(between, to) {
				return l.shift(from, between)
			}
		}
	}
	return false
}

// fillBy is unloadBy for a place that needs copies.
func (l *layout) fillBy(to int) bool {
	givers := l.bestOfZones(fullness, hasSpare)
	for between := range l.places {
		if between == to || l.find(between, to) < 0 {
			continue
		}
		for _, from := range givers {
			if from != to && l.find(from, between) >= 0 {
				return l.shift(between, to) && l.shift(from, between)
			}
		}
	}
	return false
}

// bestOfZones returns the open places of the lowest rank that fit, two of each zone:
// the first may already have the copy that would come.
func (l *layout) bestOfZones(rank func(*place) int, fits func(*place) bool) []int {
	var all, best []int
	for i := range l.places {
		if c := &l.places[i]; c.open && fits(c) {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(rank(&l.places[a]), rank(&l.places[b])) })
	taken := make([]int, len(l.zones))
	for _, i := range all {
		if z := l.places[i].zone; taken[z] < 2 {
			taken[z]++
			best = append(best, i)
		}
	}
	return best
}

// relieve calls move for the open place with the greatest need until no place has any
// or move fails for all that do.
func (l *layout) relieve(need func(*place) int, move func(i int) bool) (moved bool) {
	failed := make(map[int]bool)
	for {
		worst := -1
		for i := range l.places {
			c := &l.places[i]
			if c.open && !failed[i] && need(c) > 0 && (worst < 0 || need(c) > need(&l.places[worst])) {
				worst = i
			}
		}
		switch {
		case worst < 0:
			return moved
		case move(worst):
			moved = true
		default:
			failed[worst] = true
		}
	}
}

// each tries the open places that fit, by rank, until one succeeds. The first one
// nearly always does.
func (l *layout) each(rank func(*place) int, fits func(*place) bool, try func(i int) bool) bool {
	first := -1
	for i := range l.places {
		c := &l.places[i]
		if c.open && fits(c) && (first < 0 || rank(c) < rank(&l.places[first])) {
			first = i
		}
	}
	if first < 0 || try(first) {
		return first >= 0
	}
	var rest []int
	for i := range l.places {
		if c := &l.places[i]; i != first && c.open && fits(c) {
			rest = append(rest, i)
		}
	}
	slices.SortStableFunc(rest, func(a, b int) int { return cmp.Compare(rank(&l.places[a]), rank(&l.places[b])) })
	return slices.ContainsFunc(rest, try)
}

// shift moves one copy between two places, if there is one that may.
func (l *layout) shift(from, to int) bool {
	k := l.find(from, to)
	if k < 0 {
		return false
	}
	l.step(k, from, to, ForBalance)
	return true
}

// find returns the spread whose copy best moves between two places, or -1: one that
// does not lead, since a leader costs a handover too.
func (l *layout) find(from, to int) int {
	held := l.places[from].held
	if from == to || len(held) == 0 || !l.places[from].open || !l.places[to].open {
		return -1
	}
	best := -1
	start := int(mix(uint64(from)<<32|uint64(to)) % uint64(len(held)))
	for i := range held {
		k := held[(start+i)%len(held)]
		if !l.mayShift(k, from, to) {
			continue
		}
		if best = k; !l.leads(&l.spreads[k], from) {
			break
		}
	}
	return best
}

func (l *layout) mayShift(k, from, to int) bool {
	p := &l.spreads[k]
	if p.busy || !p.whole || slices.Contains(p.at, to) {
		return false
	}
	zone := l.places[to].zone
	return l.places[from].zone == zone || l.inZone(p, zone, from) < l.most
}
