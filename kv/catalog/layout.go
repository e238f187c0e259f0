package catalog

import (
	"slices"
)

// balancePercent is how far the copies on a node may be from the mean, in per cent.
// Where that is less than one copy, the next whole numbers are allowed. Within it
// nothing is moved: a copy that moves costs its whole size in disk and network.
const balancePercent = 5

// Situation is what is known about nodes and shards beside the map.
type Situation struct {
	// Away are the nodes that do not answer now. They are given nothing, and shards
	// with a copy there are not moved for balance.
	Away map[string]bool
	// Dead are the nodes that have not answered for longer than the delay after which
	// their copies are made elsewhere. They need not be in Away too.
	Dead map[string]bool
	// Leaders are the nodes that lead shards, as far as known.
	Leaders map[uint32]string
}

func (s Situation) answers(node string) bool { return !s.Away[node] && !s.Dead[node] }

// layout is a map being rearranged: where the copies will be when all moves under way
// and all steps planned so far are made.
type layout struct {
	sit     Situation
	wanted  int // copies of a shard
	homes   int // nodes where copies may stay
	places  []place
	zones   []zone
	most    int      // copies of a shard that one zone may hold
	spreads []spread // the shards in the order of the map, then the catalog's group
	urgent  []int    // those that steps can help, with the fewest answering copies first

	plan Plan
}

// place is a node, as a place for copies.
type place struct {
	node *Node
	zone int   // -1 unless home
	home bool  // an active storage node that is not dead: copies may stay
	open bool  // a home that answers: copies may come
	held []int // places in spreads of the copies here, without the catalog's
	lo   int   // copies that it should have at least, and at most
	hi   int
}

type zone struct {
	name  string
	homes int
}

// spread is a shard, as the set of its copies.
type spread struct {
	shard *Shard
	at    []int // places
	light bool  // the catalog's group: too small to count
	live  int   // copies on nodes that answer, before any move
	busy  bool  // a move is under way, or the quorum is lost: no step helps now
	whole bool  // every copy is on a node that answers
}

func newLayout(m *Map, sit Situation) *layout {
	l := &layout{sit: sit, wanted: m.Replication}
	l.addPlaces(m)
	l.limitZones()
	index := make(map[string]int, len(m.Nodes))
	for i := range m.Nodes {
		index[m.Nodes[i].ID] = i
	}
	l.spreads = make([]spread, 0, len(m.Shards)+1)
	for i := range m.Shards {
		l.addSpread(&m.Shards[i], index)
	}
	if m.Version > 0 {
		l.addSpread(&m.Catalog, index)
	}
	l.sortByNeed()
	l.setBands()
	return l
}

func (l *layout) sortByNeed() {
	for k := range l.spreads {
		if !l.spreads[k].busy {
			l.urgent = append(l.urgent, k)
		}
	}
	slices.SortStableFunc(l.urgent, func(a, b int) int { return l.spreads[a].live - l.spreads[b].live })
}

func (l *layout) addPlaces(m *Map) {
	l.places = make([]place, len(m.Nodes))
	for i := range m.Nodes {
		n := &m.Nodes[i]
		p := &l.places[i]
		*p = place{node: n, zone: -1, home: n.Storage && n.State == Active && !l.sit.Dead[n.ID]}
		if !p.home {
			continue
		}
		p.open = l.sit.answers(n.ID)
		p.zone = slices.IndexFunc(l.zones, func(z zone) bool { return z.name == n.Zone })
		if p.zone < 0 {
			p.zone = len(l.zones)
			l.zones = append(l.zones, zone{name: n.Zone})
		}
		l.zones[p.zone].homes++
		l.homes++
	}
}

// limitZones finds the smallest number of copies a zone with which all copies of a
// shard have room: the loss of a zone then takes as few as can be.
func (l *layout) limitZones() {
	copies := min(l.wanted, l.homes)
	for l.most = 1; ; l.most++ {
		room := 0
		for _, z := range l.zones {
			room += min(l.most, z.homes)
		}
		if room >= copies {
			return
		}
	}
}

func (l *layout) addSpread(s *Shard, index map[string]int) {
	p := spread{shard: s, light: s.ID == CatalogShard, live: answering(s, l.sit)}
	for _, r := range s.Replicas {
		p.at = append(p.at, index[r.Node])
	}
	p.whole = p.live == len(s.Replicas)
	if len(s.Replicas) > 0 && p.live < quorum(len(s.Replicas)) {
		p.busy = true
		l.plan.Stuck = append(l.plan.Stuck, Stuck{Shard: s.ID, Why: lostQuorum(s, l.sit)})
	}
	if s.Moving != nil {
		p.busy = true
		l.addMove(&p, index)
	}
	l.spreads = append(l.spreads, p)
	for _, i := range p.at {
		l.hold(i, len(l.spreads)-1)
	}
}

// addMove counts the move of a shard as made, unless its target is lost.
func (l *layout) addMove(p *spread, index map[string]int) {
	v := p.shard.Moving
	if v.To != "" && !l.places[index[v.To]].home {
		l.plan.Cancel = append(l.plan.Cancel, p.shard.ID)
		return
	}
	if v.From != "" {
		p.at = slices.DeleteFunc(p.at, func(i int) bool { return i == index[v.From] })
	}
	if v.To != "" {
		p.at = append(p.at, index[v.To])
	}
}

func quorum(voters int) int { return voters/2 + 1 }

// hold notes that place i has a copy of spread k.
func (l *layout) hold(i, k int) {
	if !l.spreads[k].light {
		l.places[i].held = append(l.places[i].held, k)
	}
}

// step plans a move of spread k and makes it in the layout; a place of -1 is none.
func (l *layout) step(k, from, to int, why Reason) {
	p := &l.spreads[k]
	s := Step{Shard: p.shard.ID, Reason: why}
	if from >= 0 {
		s.From = l.places[from].node.ID
		p.at = slices.DeleteFunc(p.at, func(i int) bool { return i == from })
		held := &l.places[from].held
		*held = slices.DeleteFunc(*held, func(j int) bool { return j == k })
	}
	if to >= 0 {
		s.To = l.places[to].node.ID
		p.at = append(p.at, to)
		l.hold(to, k)
	}
	l.plan.Steps = append(l.plan.Steps, s)
}

// copies is how many copies a shard that has n should have. Where nodes are too few it
// stays odd: a second voter adds a second node that must not fail. A node that fails
// is no reason to want fewer.
func (l *layout) copies(n int) int {
	most := l.wanted
	if most > l.homes {
		most = l.homes - (l.homes+1)%2
	}
	return max(most, min(n, l.wanted))
}

// inZone counts the copies of p in a zone, without the one at place skip.
func (l *layout) inZone(p *spread, zone, skip int) int {
	n := 0
	for _, i := range p.at {
		if i != skip && l.places[i].zone == zone {
			n++
		}
	}
	return n
}

// leads reports whether the copy of p at place i leads, or would by the map alone.
func (l *layout) leads(p *spread, i int) bool {
	if leader, known := l.sit.Leaders[p.shard.ID]; known {
		return leader == l.places[i].node.ID
	}
	return len(p.at) > 0 && p.at[0] == i
}

// setBands says how many copies each home should have: its share of all, where a zone
// has no more than it may hold of each shard.
func (l *layout) setBands() {
	total, shards := 0, 0
	for i := range l.spreads {
		if p := &l.spreads[i]; !p.light {
			total += l.copies(len(p.at))
			shards++
		}
	}
	shares := l.shares(total, shards)
	for i := range l.places {
		if p := &l.places[i]; p.home {
			p.lo, p.hi = band(shares[p.zone].copies, shares[p.zone].homes)
		}
	}
}

// share is the copies that belong on a number of homes.
type share struct{ copies, homes int }

// shares divides copies over the zones by their homes. A zone that would hold more
// than it may is given that, and the others share the rest.
func (l *layout) shares(total, shards int) []share {
	shares := make([]share, len(l.zones))
	homes := l.homes
	for full := true; full; {
		full = false
		for i, z := range l.zones {
			room := shards * min(l.most, z.homes)
			if shares[i].homes == 0 && total*z.homes > room*homes {
				shares[i] = share{room, z.homes}
				total, homes, full = total-room, homes-z.homes, true
			}
		}
	}
	for i := range shares {
		if shares[i].homes == 0 {
			shares[i] = share{total, homes}
		}
	}
	return shares
}

// band is the range in which a count of total over n is balanced.
func band(total, n int) (lo, hi int) {
	down := func(a, b int) int { return a / b }
	up := func(a, b int) int { return (a + b - 1) / b }
	lo = min(down(total, n), up(total*(100-balancePercent), n*100))
	hi = max(up(total, n), down(total*(100+balancePercent), n*100))
	return lo, hi
}

// pick returns the best place for one more copy of spread k, not counting the copy at
// place skip; -1 where there is none. A place in a zone that has enough copies of the
// shard is taken only where strict is false and nothing else is left.
func (l *layout) pick(k, skip int, strict bool) int {
	p := &l.spreads[k]
	best, bestLegal, bestLoad, bestMix := -1, false, 0, uint64(0)
	for i := range l.places {
		c := &l.places[i]
		if !c.open || slices.Contains(p.at, i) {
			continue
		}
		legal := l.inZone(p, c.zone, skip) < l.most
		if strict && !legal {
			continue
		}
		load, mixed := len(c.held)-c.lo, mix(uint64(p.shard.ID)<<32|uint64(i))
		switch {
		case best < 0, legal && !bestLegal,
			legal == bestLegal && (load < bestLoad || load == bestLoad && mixed < bestMix):
			best, bestLegal, bestLoad, bestMix = i, legal, load, mixed
		}
	}
	return best
}

// mix scatters its argument (the finalizer of splitmix64): equal places are taken in
// another order for each shard, so that the copies of one node's shards lie on many
// nodes, and many help to replace it.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
