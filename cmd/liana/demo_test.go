package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

func TestDemoStreamHasTheShapeOfTheRealOne(t *testing.T) {
	likes := demoStream(1, demoLikes)
	users, notes, pairs := map[uint64]int{}, map[uint64]int{}, map[[2]uint64]bool{}
	for _, like := range likes {
		users[like.user]++
		notes[like.note]++
		pairs[[2]uint64{like.user, like.note}] = true
	}
	if len(likes) != demoLikes || len(pairs) != demoLikes || len(users) != demoUsers || len(notes) != demoNotes {
		t.Errorf("%d likes, %d pairs, %d users, %d notes", len(likes), len(pairs), len(users), len(notes))
	}
	if !slices.IsSortedFunc(likes, func(a, b demoLike) int { return int(a.time - b.time) }) {
		t.Error("not in the order of time")
	}
	first, last := time.UnixMicro(likes[0].time).UTC(), time.UnixMicro(likes[demoLikes-1].time).UTC()
	if first.Format(time.DateOnly) != "2013-02-28" || last.Format(time.DateOnly) != "2013-09-01" {
		t.Errorf("from %s to %s", first, last)
	}
	var degrees []int
	for _, n := range notes {
		degrees = append(degrees, n)
	}
	slices.Sort(degrees)
	top := 0
	for _, n := range degrees[len(degrees)-demoNotes/100:] {
		top += n
	}
	// The real stream: the top note has 1,812 likes, the top 1 % of notes 41 % of all.
	if most := degrees[len(degrees)-1]; most < 900 || most > 5000 {
		t.Errorf("the top note has %d likes", most)
	}
	if share := float64(top) / demoLikes; share < 0.3 || share > 0.6 {
		t.Errorf("the top notes have %.2f of the likes", share)
	}
	if !slices.Equal(likes, demoStream(1, demoLikes)) || slices.Equal(likes, demoStream(2, demoLikes)) {
		t.Error("a seed must make one stream, another seed another one")
	}
}

func TestDemo(t *testing.T) {
	f, addr := startFake(t)
	var result demoResult
	if err := json.Unmarshal([]byte(must(t, "demo", "--likes", "5000", "-o", "json", "--addr", addr)), &result); err != nil {
		t.Fatal(err)
	}
	if result.Created != 5000 || result.AlreadyThere != 0 || f.size() != 5000 {
		t.Errorf("%+v, %d edges", result, f.size())
	}
	has := asMessage(t, new(lianav1.HasEdgeResponse), "edge", "has", result.Liker, "like", result.BusiestNote, "--addr", addr)
	if !has.Exists {
		t.Error("the shown liker does not like the shown note")
	}
	// All the commands it shows work, also when it is loaded twice.
	f.check = []*lianav1.CheckResponse{{Done: true}}
	tour := must(t, "demo", "--likes", "5000", "--addr", addr)
	if !strings.Contains(tour, "already there 5000") {
		t.Errorf("got %s", tour)
	}
	shown := 0
	for line := range strings.Lines(tour) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "liana "); ok {
			must(t, strings.Fields(command)...)
			shown++
		}
	}
	if shown < 6 {
		t.Errorf("only %d commands shown", shown)
	}
}
