package workload

import "math/rand/v2"

// Graph is a stored graph of likes by rank: which notes each user likes. It
// takes 4 bytes an edge, so that a stream can name edges that exist.
type Graph struct {
	notes   int
	offsets []uint32
	likes   []uint32
}

// NewLinkBenchGraph gives each of users an out-degree of LinkBench's
// distribution and fills it with distinct notes by Zipf 0.9: LinkBench itself
// has no skew on the far side, likes do.
func NewLinkBenchGraph(seed uint64, users, notes int) *Graph {
	degree := LinearCDF(linkBenchOutDegree())
	return newGraph(seed, users, notes, func(rng *rand.Rand) int { return degree.Draw(rng) })
}

// NewEvenGraph gives each of users the same number of likes.
func NewEvenGraph(seed uint64, users, notes, degree int) *Graph {
	return newGraph(seed, users, notes, func(*rand.Rand) int { return degree })
}

func newGraph(seed uint64, users, notes int, degree func(*rand.Rand) int) *Graph {
	rng := rand.New(rand.NewPCG(seed, 0x67726170))
	popular := NewZipf(notes, storePopularity)
	g := &Graph{notes: notes, offsets: make([]uint32, 1, users+1)}
	seen := map[uint32]bool{}
	for range users {
		// A user of a small trial cannot like more than there is; a quarter of
		// all notes keeps the search for distinct ones short.
		want := min(degree(rng), max(notes/4, 1))
		clear(seen)
		for len(seen) < want {
			note := uint32(popular.Draw(rng))
			if !seen[note] {
				seen[note] = true
				g.likes = append(g.likes, note)
			}
		}
		g.offsets = append(g.offsets, uint32(len(g.likes)))
	}
	return g
}

// Users is the number of users, Notes that of notes, Edges that of likes.
func (g *Graph) Users() int { return len(g.offsets) - 1 }
func (g *Graph) Notes() int { return g.notes }
func (g *Graph) Edges() int { return len(g.likes) }

// Likes returns the ranks of the notes that a user likes, oldest like first.
func (g *Graph) Likes(user int) []uint32 {
	return g.likes[g.offsets[user]:g.offsets[user+1]]
}

// Load calls add for every edge with its ids and time, in user order.
func (g *Graph) Load(ids IDs, add func(Edge) error) error {
	users, notes := ids.Space(g.Users()), ids.Space(g.notes)
	clock := NewClock(g.Edges())
	for u := range g.Users() {
		src := users.ID(u)
		for _, note := range g.Likes(u) {
			if err := add(Edge{Src: src, Dst: notes.ID(int(note)), Time: clock.Next()}); err != nil {
				return err
			}
		}
	}
	return nil
}
