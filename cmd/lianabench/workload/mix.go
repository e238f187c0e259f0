package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// share is the part of a kind of operation in a mix, in percent.
type share struct {
	kind    Kind
	percent float64
}

// Mix describes a workload. The zero value is not of use; see NewMix.
type Mix struct {
	Name  string
	Users int
	Notes int
	IDs   IDs
	Seed  uint64
	// Graph is what must be stored before the stream starts; nil for nothing.
	Graph *Graph
	// Lists says that the mix reads lists by time, which costs a system without
	// such an order by nature a second structure.
	Lists bool

	userIDs Space
	noteIDs Space
	shares  []share
	next    func(s *Stream, op *Op)
	readers *Zipf
	writers *Zipf
	popular *Zipf
	batch   *CDF
}

// Names lists the mixes that NewMix makes.
func Names() []string { return []string{"write", "hot", "has", "feed", "linkbench"} }

// hasDegree is the number of likes of each user in the mix "has", hasBatch the
// number of notes a call asks about: half of them liked.
const (
	hasDegree = 128
	hasBatch  = 100
)

// NewMix builds a mix, with its stored graph where it has one.
//
//	write      adds only: users uniform, notes Zipf 0.99
//	hot        adds only: all on one note, each by another user
//	has        100 membership tests of one user, who has 128 likes; half exist
//	feed       the proposed likes profile over a graph of LinkBench's shape
//	linkbench  LinkBench's operations on links over the same graph
func NewMix(name string, seed uint64, users, notes int, ids IDs) (*Mix, error) {
	if users < 1 || notes < 2 || users > math.MaxInt32 || notes > math.MaxInt32 {
		return nil, fmt.Errorf("mix %s: users %d and notes %d must be in 1 … 2^31 and 2 … 2^31", name, users, notes)
	}
	m := &Mix{Name: name, Users: users, Notes: notes, IDs: ids, Seed: seed,
		userIDs: ids.Space(users), noteIDs: ids.Space(notes)}
	switch name {
	case "write":
		m.popular = NewZipf(notes, notePopularity)
		m.next = (*Stream).nextWrite
	case "hot":
		m.next = (*Stream).nextHot
	case "has":
		m.Graph = NewEvenGraph(seed, users, notes, hasDegree)
		m.readers = NewZipf(users, linkReadShape)
		m.next = (*Stream).nextHas
	case "feed":
		m.Graph = NewLinkBenchGraph(seed, users, notes)
		m.Lists, m.shares, m.batch = true, feedShares(), GeometricCDF(feedBatch())
		m.popular = NewZipf(notes, notePopularity)
		m.next = (*Stream).nextFeed
	case "linkbench":
		m.Graph = NewLinkBenchGraph(seed, users, notes)
		m.Lists, m.shares = true, linkBenchShares()
		m.popular = NewZipf(notes, storePopularity)
		m.next = (*Stream).nextLink
	default:
		return nil, fmt.Errorf("mix %q is none of %v", name, Names())
	}
	if m.shares != nil {
		m.readers, m.writers = NewZipf(users, linkReadShape), NewZipf(users, linkWriteShape)
	}
	return m, nil
}

// Stream is the sequence of operations of one caller. It is used by one
// goroutine.
type Stream struct {
	mix     *Mix
	rng     *rand.Rand
	caller  int
	callers int
	count   int
}

// Stream returns the operations of caller (0 … callers-1). The same mix, caller
// and salt give the same operations; another salt gives other ones of the same
// shape, for a system that is measured twice on the same data.
func (m *Mix) Stream(caller, callers int, salt uint64) *Stream {
	rng := rand.New(rand.NewPCG(m.Seed+salt*0x9e3779b9, uint64(caller)))
	return &Stream{mix: m, rng: rng, caller: caller, callers: callers, count: int(salt) << 24}
}

// Next fills op with the next operation.
func (s *Stream) Next(op *Op) {
	ids := op.IDs[:0]
	*op = Op{IDs: ids}
	s.mix.next(s, op)
	s.count++
}

func (s *Stream) nextWrite(op *Op) {
	op.Kind = Add
	op.Edge = s.edge(s.rng.IntN(s.mix.Users), s.mix.popular.Draw(s.rng))
}

// nextHot numbers the users through, so that every add is a new one however
// long the run is. The note is rank 1, to be another than the favourite of "write".
func (s *Stream) nextHot(op *Op) {
	op.Kind = Add
	op.Edge = s.edge(s.count*s.callers+s.caller, 1)
}

func (s *Stream) nextHas(op *Op) {
	user := s.mix.readers.Draw(s.rng)
	s.has(op, user, hasBatch, s.unrelated)
}

func (s *Stream) nextFeed(op *Op) {
	op.Kind = s.kind()
	reader := s.mix.readers.Draw(s.rng)
	switch op.Kind {
	case Has:
		s.has(op, reader, s.mix.batch.Draw(s.rng), s.popularNote)
	case Count:
		op.In = true
		for range s.mix.batch.Draw(s.rng) {
			op.IDs = append(op.IDs, s.noteID(s.popularNote()))
		}
	case Add:
		s.write(op, addExists)
	case Delete:
		s.write(op, deleteExists)
	default:
		// Half of the pages are "who likes this", half "what I liked".
		op.Limit = 20
		if op.In = s.rng.IntN(2) == 0; op.In {
			op.Vertex = s.noteID(s.popularNote())
		} else {
			op.Vertex = s.userID(reader)
		}
		if op.Kind == ListOlder {
			op.Skip = op.Limit * (1 + s.rng.IntN(10))
		}
	}
}

func (s *Stream) nextLink(op *Op) {
	op.Kind = s.kind()
	switch op.Kind {
	case Add:
		s.write(op, addExists)
	case Delete:
		s.write(op, deleteExists)
	case Update:
		s.write(op, updateExists)
	case Count:
		op.IDs = append(op.IDs, s.userID(s.mix.readers.Draw(s.rng)))
	case Has:
		size := 1
		for size < multigetMax && s.rng.Float64() >= multigetP {
			size++
		}
		s.has(op, s.mix.readers.Draw(s.rng), size, s.unrelated)
	case ListNewest:
		op.Vertex, op.Limit = s.userID(s.mix.readers.Draw(s.rng)), linkPageLimit
		if s.rng.Float64() < linkTailShare {
			op.Kind, op.Skip = ListOlder, linkPageLimit
		}
	}
}

// kind draws a kind by the mix's shares.
func (s *Stream) kind() Kind {
	x := s.rng.Float64() * 100
	for _, sh := range s.mix.shares {
		if x -= sh.percent; x < 0 {
			return sh.kind
		}
	}
	return s.mix.shares[0].kind
}

// write picks the edge of a write: one of the stored graph with the given
// probability, otherwise a new pair.
func (s *Stream) write(op *Op, exists float64) {
	user := s.mix.writers.Draw(s.rng)
	note := s.mix.popular.Draw(s.rng)
	if s.rng.Float64() < exists {
		user, note = s.stored(user, note)
	}
	op.Edge = s.edge(user, note)
}

// stored returns an edge of the graph, of user where it has any, or of the next
// user that has.
func (s *Stream) stored(user, note int) (int, int) {
	g := s.mix.Graph
	for range g.Users() {
		if likes := g.Likes(user); len(likes) > 0 {
			return user, int(likes[s.rng.IntN(len(likes))])
		}
		user = (user + 1) % g.Users()
	}
	return user, note
}

// has asks about size notes of user: a liked one with LinkBench's probability,
// as far as the user likes any, or one that other gives.
func (s *Stream) has(op *Op, user, size int, other func() int) {
	op.Kind, op.Vertex = Has, s.userID(user)
	likes := s.mix.Graph.Likes(user)
	for range size {
		note := 0
		if len(likes) > 0 && s.rng.Float64() < getExists {
			note = int(likes[s.rng.IntN(len(likes))])
		} else {
			note = other()
		}
		op.IDs = append(op.IDs, s.noteID(note))
	}
}

func (s *Stream) unrelated() int   { return s.rng.IntN(s.mix.Notes) }
func (s *Stream) popularNote() int { return s.mix.popular.Draw(s.rng) }

func (s *Stream) userID(rank int) uint64 { return s.mix.userIDs.ID(rank) }
func (s *Stream) noteID(rank int) uint64 { return s.mix.noteIDs.ID(rank) }

func (s *Stream) edge(user, note int) Edge {
	return Edge{Src: s.userID(user), Dst: s.noteID(note)}
}
