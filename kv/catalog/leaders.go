package catalog

import "slices"

// PreferredLeaders returns the node that should lead each shard, so that every node
// leads about as many (within the tolerance for copies): the present leader, or the
// first copy where none is known, with as few changes as that takes. A node that is
// dead, does not answer or is being drained should lead nothing; a shard with copies
// on such nodes only is left out.
//
// It depends on its arguments alone; who transfers leadership compares the result
// with the present leaders.
func PreferredLeaders(m *Map, sit Situation) map[uint32]string {
	b := newBallot(m, sit)
	b.settle()
	chosen := make(map[uint32]string, len(b.seats))
	for _, s := range b.seats {
		chosen[s.shard] = b.nodes[s.led].id
	}
	return chosen
}

// ballot spreads leaders over nodes. A leader that moves makes its node one lighter
// and another heavier; a chain of such moves, each within the copies of one shard,
// goes from a node that leads too many to one that can take more.
type ballot struct {
	nodes []candidate
	seats []seat
	lo    int // a node should lead at least and at most
	hi    int
}

type candidate struct {
	id    string
	seats []int // shards that it could lead
	leads int   // how many it does
}

type seat struct {
	shard uint32
	may   []int // nodes
	led   int   // node
}

func newBallot(m *Map, sit Situation) *ballot {
	b := &ballot{}
	index := make(map[string]int)
	for i := range m.Nodes {
		if n := &m.Nodes[i]; n.Storage && n.State == Active && sit.answers(n.ID) {
			index[n.ID] = len(b.nodes)
			b.nodes = append(b.nodes, candidate{id: n.ID})
		}
	}
	for i := range m.Shards {
		b.add(&m.Shards[i], index, sit)
	}
	if len(b.nodes) > 0 {
		b.lo, b.hi = band(len(b.seats), len(b.nodes))
	}
	return b
}

func (b *ballot) add(s *Shard, index map[string]int, sit Situation) {
	t := seat{shard: s.ID, led: -1}
	for _, r := range s.Replicas {
		// The copy that is about to go is the last choice, and no choice if there is another.
		leaves := s.Moving != nil && s.Moving.From == r.Node && len(s.Replicas) > 1
		if i, ok := index[r.Node]; ok && !leaves {
			t.may = append(t.may, i)
			if t.led < 0 || sit.Leaders[s.ID] == r.Node {
				t.led = i
			}
		}
	}
	if t.led < 0 {
		return
	}
	for _, i := range t.may {
		b.nodes[i].seats = append(b.nodes[i].seats, len(b.seats))
	}
	b.nodes[t.led].leads++
	b.seats = append(b.seats, t)
}

// settle brings every node within the band, as far as the copies allow.
func (b *ballot) settle() {
	for i := range b.nodes {
		for b.nodes[i].leads > b.hi && b.relieve(i) {
		}
	}
	for i := range b.nodes {
		for b.nodes[i].leads < b.lo && b.promote(i) {
		}
	}
}

// link is how a search came to a node: by handing over a seat, from or to the node
// before.
type link struct{ before, seat int }

// relieve hands one leadership of node i on to the nearest node that leads less than
// it may at most, if there is one: to one that leads too few, where one is as near.
func (b *ballot) relieve(i int) bool {
	next := func(n int, visit func(node, seat int)) {
		for _, k := range b.nodes[n].seats {
			if b.seats[k].led == n {
				for _, to := range b.seats[k].may {
					visit(to, k)
				}
			}
		}
	}
	path, end := b.search(i, next, func(n int) bool { return b.nodes[n].leads < b.hi })
	if end < 0 {
		return false
	}
	for n := end; n != i; n = path[n].before {
		b.seats[path[n].seat].led = n
	}
	b.nodes[i].leads--
	b.nodes[end].leads++
	return true
}

// promote hands one leadership to node i from the nearest node that leads more than it
// must at least, if there is one.
func (b *ballot) promote(i int) bool {
	next := func(n int, visit func(node, seat int)) {
		for _, k := range b.nodes[n].seats {
			if led := b.seats[k].led; led != n {
				visit(led, k)
			}
		}
	}
	path, end := b.search(i, next, func(n int) bool { return b.nodes[n].leads > b.lo })
	if end < 0 {
		return false
	}
	for n := end; n != i; n = path[n].before {
		b.seats[path[n].seat].led = path[n].before
	}
	b.nodes[end].leads--
	b.nodes[i].leads++
	return true
}

// search goes breadth first from node i to the first node that is wanted; -1 where
// there is none.
func (b *ballot) search(i int, next func(n int, visit func(node, seat int)), wanted func(n int) bool) (map[int]link, int) {
	path := map[int]link{i: {before: -1, seat: -1}}
	for queue := []int{i}; len(queue) > 0; queue = queue[1:] {
		at, found := queue[0], -1
		next(at, func(node, seat int) {
			if _, met := path[node]; met || found >= 0 {
				return
			}
			path[node] = link{before: at, seat: seat}
			queue = append(queue, node)
			if wanted(node) {
				found = node
			}
		})
		if found >= 0 {
			return path, found
		}
	}
	return nil, -1
}

// first puts the copy that should lead first into the list of each shard.
func first(shards []Shard, leaders map[uint32]string) {
	for i := range shards {
		s := &shards[i]
		if k := s.On(leaders[s.ID]); k > 0 {
			s.Replicas = slices.Clone(s.Replicas)
			s.Replicas[0], s.Replicas[k] = s.Replicas[k], s.Replicas[0]
		}
	}
}
