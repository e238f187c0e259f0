package main

import (
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// The demo's shape is that of a real stream of likes (MovieTweetings 100k): so many
// users and notes, popularity after Zipf's law with the exponents fitted to it, one
// like a pair, over the same half year.
const (
	demoLikes    = 100_000
	demoUsers    = 16_554
	demoNotes    = 10_506
	demoUserZipf = 0.586
	demoNoteZipf = 0.886
)

// demoLike is one like of the demo; user and note count from 1.
type demoLike struct {
	user, note uint64
	time       int64
}

// demoStream makes the likes of a seed, oldest first. Each user likes something and
// each note is liked, as in the real stream: those likes come first, the others are
// drawn after Zipf's law. limit cuts the result.
func demoStream(seed uint64, limit int) []demoLike {
	rng := rand.New(rand.NewPCG(seed, demoLikes))
	users, notes := newZipf(demoUsers, demoUserZipf, rng), newZipf(demoNotes, demoNoteZipf, rng)
	likes := make([]demoLike, 0, demoLikes)
	taken := make(map[[2]uint64]bool, demoLikes)
	add := func(user, note uint64) {
		if pair := [2]uint64{user, note}; !taken[pair] {
			taken[pair] = true
			likes = append(likes, demoLike{user: user, note: note})
		}
	}
	for user := uint64(1); user <= demoUsers; user++ {
		if user <= demoNotes {
			add(user, uint64(notes.id[user-1]))
		} else {
			add(user, notes.draw(rng))
		}
	}
	for len(likes) < demoLikes {
		add(users.draw(rng), notes.draw(rng))
	}
	rng.Shuffle(len(likes), func(i, j int) { likes[i], likes[j] = likes[j], likes[i] })
	for i, t := range demoTimes(rng) {
		likes[i].time = t
	}
	return likes[:min(limit, len(likes))]
}

// demoTimes returns the times of the likes, ascending.
func demoTimes(rng *rand.Rand) []int64 {
	from := time.Date(2013, 2, 28, 0, 0, 0, 0, time.UTC).UnixMicro()
	until := time.Date(2013, 9, 2, 0, 0, 0, 0, time.UTC).UnixMicro()
	times := make([]int64, demoLikes)
	for i := range times {
		times[i] = from + rng.Int64N(until-from)
	}
	slices.Sort(times)
	return times
}

// zipf draws from n ids; the probability of rank r goes with r^-s. Ranks are shuffled
// over the ids.
type zipf struct {
	sums []float64 // sums[r] is the weight of the ranks 0 to r
	id   []int     // of a rank
}

func newZipf(n int, s float64, rng *rand.Rand) *zipf {
	z := &zipf{sums: make([]float64, n), id: rng.Perm(n)}
	var sum float64
	for r := range z.sums {
		sum += math.Pow(float64(r+1), -s)
		z.sums[r] = sum
		z.id[r]++
	}
	return z
}

func (z *zipf) draw(rng *rand.Rand) uint64 {
	rank := sort.SearchFloat64s(z.sums, rng.Float64()*z.sums[len(z.sums)-1])
	return uint64(z.id[min(rank, len(z.id)-1)])
}

// demoSource hands the likes to the loader.
type demoSource struct {
	likes []demoLike
	batch int
	sent  int
}

func (s *demoSource) next() (*batch, error) {
	n := min(s.batch, len(s.likes)-s.sent)
	if n == 0 {
		return nil, io.EOF
	}
	b := &batch{rows: uint64(n)}
	for _, like := range s.likes[s.sent : s.sent+n] {
		b.mutations = append(b.mutations, &lianav1.Mutation{
			Op: lianav1.MutationOp_ADD, Type: "like", SrcId: like.user, DstId: like.note, Time: like.time})
	}
	s.sent += n
	b.share = float64(s.sent) / float64(len(s.likes))
	return b, nil
}
