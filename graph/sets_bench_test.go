package graph

import (
	"context"
	"testing"
)

// Who among the 500 people that I follow liked a note with a million likes, a fifth of them.
func BenchmarkFriendsWhoLiked(b *testing.B) {
	w := newWorld(b, false, nil)
	like, follow := w.edgeType("like"), w.edgeType("follow")
	const likes, friends = 1_000_000, 500
	id := func(i int) uint64 { return 1 + mix64(uint64(i))>>2 }
	var ms []Mutation
	put := func(m Mutation) {
		if ms = append(ms, m); len(ms) == MaxBatch {
			w.mutate(ms...)
			ms = ms[:0]
		}
	}
	for i := range likes {
		put(Mutation{Op: OpAdd, Type: like, Src: id(i), Dst: 7, Time: int64(i + 1)})
	}
	for i := range friends {
		friend := id(i * (likes / friends))
		if i%5 > 0 {
			friend = id(likes + i)
		}
		put(Mutation{Op: OpAdd, Type: follow, Src: 42, Dst: friend, Time: int64(i + 1)})
	}
	w.mutate(ms...)
	user, _ := w.g.Schema().VertexType("user")
	note, _ := w.g.Schema().VertexType("note")
	q := SetQuery{
		Op: Intersect, PageSize: 100,
		A: SetSide{ListKey{Vertex{user, 42}, follow, Out}, AllTime()}, B: SetSide{ListKey{Vertex{note, 7}, like, In}, AllTime()},
	}
	r := w.router()
	for b.Loop() {
		page, err := r.Combine(context.Background(), ReadOptions{}, q)
		if err != nil || len(page.Members) != friends/5 {
			b.Fatal(len(page.Members), err)
		}
	}
}
