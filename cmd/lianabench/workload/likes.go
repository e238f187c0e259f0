package workload

import "math/rand/v2"

// Likes is an endless stream of likes for filling a store, in order of time.
// It has the proportions of the MovieTweetings data set: 6 likes a user, users
// uniform, 10 likes a note; notes by Zipf. Few pairs come twice.
type Likes struct {
	rng          *rand.Rand
	users, notes Space
	popular      *Zipf
	clock        *Clock
}

// NewLikes sizes users, notes and times for about n likes.
func NewLikes(seed uint64, n int, shape float64, ids IDs) *Likes {
	users, notes := max(n/6, 1), max(n/10, 2)
	return &Likes{
		rng:   rand.New(rand.NewPCG(seed, 0x6c696b65)),
		users: ids.Space(users), notes: ids.Space(notes),
		popular: NewZipf(notes, shape),
		clock:   NewClock(n),
	}
}

// Next returns the next like.
func (l *Likes) Next() Edge {
	return Edge{
		Src:  l.users.ID(l.rng.IntN(int(l.users.n))),
		Dst:  l.notes.ID(l.popular.Draw(l.rng)),
		Time: l.clock.Next(),
	}
}

// Star is the growth of one list: edge i of a vertex, oldest first.
type Star struct {
	// In grows the list of a note that many users like, else of a user who
	// likes many notes.
	In     bool
	Center uint64
	peers  Space
	base   int
}

// starStep is the time between two edges of a star, in microseconds: 10⁷ edges
// are four months.
const starStep = 1_000_000

// NewStar returns a star around the vertex of rank center. Stars of different
// ranks share no peer, for up to 2^28 edges.
func NewStar(in bool, center int, ids IDs) Star {
	// Peers are numbered above the space, where dense ids run on.
	return Star{In: in, Center: ids.Space(1).ID(center + 1), peers: ids.Space(1), base: (center + 1) << 28}
}

// Edge returns edge i.
func (s Star) Edge(i int) Edge {
	e := Edge{Src: s.Center, Dst: s.peers.ID(s.base + i), Time: s.Time(i)}
	if s.In {
		e.Src, e.Dst = e.Dst, e.Src
	}
	return e
}

// Time is the time of edge i.
func (s Star) Time(i int) int64 { return yearEnd - 365*86400*1_000_000 + int64(i)*starStep }
