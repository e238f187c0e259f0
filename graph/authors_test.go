package graph

import (
	"bufio"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A stream of likes with authors assigned: every author's likes received are recomputed
// from the likes and the authors alone, then again after random transfers of authorship,
// deletions of notes and users, and users that are hidden and restored.

const authors = 300

// authorOf assigns a note to its author, whose id is above those of the likers.
func authorOf(note uint64) uint64 { return 1<<40 + mix64(note)%authors }

// ratings are the likes of the real stream, MovieTweetings 100k (MIT), lines of
// user::item::rating::unix seconds; nil where it cannot be found. It is not part of the
// repository.
func ratings(t *testing.T) (likes []Mutation) {
	for _, path := range []string{
		os.Getenv("LIANA_RATINGS"),
		filepath.Join("..", "..", "shared", "data", "movietweetings-100k", "ratings.dat"),
	} {
		f, err := os.Open(path)
		if path == "" || err != nil {
			continue
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Split(lines.Text(), "::")
			var n [4]uint64
			for i := range n {
				if n[i], err = strconv.ParseUint(fields[i], 10, 64); err != nil {
					t.Fatal(err)
				}
			}
			likes = append(likes, Mutation{Op: OpAdd, Type: 1, Src: n[0], Dst: n[1], Time: int64(n[3]) * 1e6})
		}
		return likes
	}
	return nil
}

func TestRealStreamGivesAuthorsTheirLikes(t *testing.T) {
	if raceEnabled {
		t.Skip("`make test` runs it without the race detector; the generated stream runs with it")
	}
	likes := ratings(t)
	if likes == nil {
		t.Skip("no ratings.dat: set LIANA_RATINGS to the file of MovieTweetings 100k. TestGeneratedStreamGivesAuthorsTheirLikes does the same with a stream of that shape.")
	}
	if len(likes) != 100_000 {
		t.Errorf("%d events, the file has 100,000", len(likes))
	}
	givesAuthorsTheirLikes(t, likes)
}

func TestGeneratedStreamGivesAuthorsTheirLikes(t *testing.T) {
	rng := rand.New(rand.NewSource(5))
	notes := rand.NewZipf(rng, 1.2, 8, 4000)
	likes := make([]Mutation, 20_000)
	for i := range likes {
		likes[i] = Mutation{Op: OpAdd, Type: 1, Src: 1 + uint64(rng.Intn(6000)), Dst: 1 + notes.Uint64(), Time: int64(i + 1)}
	}
	givesAuthorsTheirLikes(t, likes)
}

// published is who likes and who published each note.
type published struct {
	likes, authors map[uint64]map[uint64]bool // by note
}

func (p *published) apply(mu Mutation) {
	of := p.likes
	if mu.Type == 4 {
		of = p.authors
	}
	if of[mu.Dst] == nil {
		of[mu.Dst] = map[uint64]bool{}
	}
	if mu.Op == OpAdd {
		of[mu.Dst][mu.Src] = true
	} else {
		delete(of[mu.Dst], mu.Src)
	}
}

func (p *published) deleteUser(id uint64) {
	for _, of := range []map[uint64]map[uint64]bool{p.likes, p.authors} {
		for _, users := range of {
			delete(users, id)
		}
	}
}

// received recomputes every author's likes.
func (p *published) received(hidden map[uint64]bool) map[uint64]int64 {
	out := map[uint64]int64{}
	for note, by := range p.authors {
		for author := range by {
			if hidden[author] {
				continue
			}
			for liker := range p.likes[note] {
				if !hidden[liker] {
					out[author]++
				}
			}
		}
	}
	return out
}

func givesAuthorsTheirLikes(t *testing.T, likes []Mutation) {
	w := newWorld(t, true, func(c *Config) { c.JobEdges = 1 << 20 })
	all := &published{map[uint64]map[uint64]bool{}, map[uint64]map[uint64]bool{}}
	put := func(ms []Mutation) {
		for batch := range slices.Chunk(ms, 5000) {
			w.mutate(batch...)
			for _, mu := range batch {
				all.apply(mu)
			}
		}
	}
	// Half of the notes have their author before they are liked, half after.
	var before, after []Mutation
	seen := map[uint64]bool{}
	var notes []uint64
	for _, l := range likes {
		if seen[l.Dst] {
			continue
		}
		seen[l.Dst] = true
		notes = append(notes, l.Dst)
		mu := Mutation{Op: OpAdd, Type: 4, Src: authorOf(l.Dst), Dst: l.Dst, Time: 1}
		if l.Dst%2 == 0 {
			before = append(before, mu)
		} else {
			after = append(after, mu)
		}
	}
	put(before)
	put(likes[:len(likes)/2])
	put(after)
	put(likes[len(likes)/2:])
	compare := func(hidden map[uint64]bool, when string) {
		t.Helper()
		settleAll(t, w)
		want := all.received(hidden)
		for author := uint64(1 << 40); author < 1<<40+authors; author++ {
			if got := w.counter(CounterRef{Vertex: Vertex{1, author}, Metric: 1}); got != want[author] {
				t.Fatalf("%s: author %d has received %d likes, want %d", when, author, got, want[author])
			}
		}
	}
	compare(nil, "after the stream")

	rng := rand.New(rand.NewSource(9))
	var moves []Mutation
	for range 500 {
		note := notes[rng.Intn(len(notes))]
		for author := range all.authors[note] {
			moves = append(moves, Mutation{Op: OpDelete, Type: 4, Src: author, Dst: note})
		}
		moves = append(moves, Mutation{Op: OpAdd, Type: 4, Src: 1<<40 + uint64(rng.Intn(authors)), Dst: note, Time: 2})
		l := likes[rng.Intn(len(likes))]
		moves = append(moves, Mutation{Op: OpDelete, Type: 1, Src: l.Src, Dst: l.Dst})
	}
	put(moves)
	compare(nil, "after transfers and unlikes")

	hidden := map[uint64]bool{}
	var ends []func()
	remove := func(op VertexOp, v Vertex, end VertexState) {
		w.change(op, v)
		ends = append(ends, func() { w.become(t, v, end) })
	}
	touched := map[Vertex]bool{} // each vertex meets one operation
	once := func(v Vertex) bool {
		is := touched[v]
		touched[v] = true
		return !is
	}
	for range 12 {
		note, liker := notes[rng.Intn(len(notes))], likes[rng.Intn(len(likes))].Src
		author, shy := 1<<40+uint64(rng.Intn(authors)), 1<<40+uint64(rng.Intn(authors))
		if once(Vertex{2, note}) {
			remove(VertexDelete, Vertex{2, note}, VertexPlain)
			delete(all.likes, note)
			delete(all.authors, note)
		}
		for _, id := range []uint64{liker, author} {
			if once(Vertex{1, id}) {
				remove(VertexDelete, Vertex{1, id}, VertexPlain)
				all.deleteUser(id)
			}
		}
		for _, id := range []uint64{shy, likes[rng.Intn(len(likes))].Src} {
			if once(Vertex{1, id}) {
				remove(VertexHide, Vertex{1, id}, VertexHidden)
				hidden[id] = true
			}
		}
	}
	for _, end := range ends {
		end()
	}
	compare(hidden, "after deletions, with some hidden")
	ends = nil
	for id := range hidden {
		remove(VertexRestore, Vertex{1, id}, VertexPlain)
	}
	for _, end := range ends {
		end()
	}
	compare(nil, "after all are restored")
	w.check()
}
