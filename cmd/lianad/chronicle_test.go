package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/lianadb/liana/cache"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// subject is what has a history: a list of a vertex, or a counter of one.
type subject struct {
	vertex string // its type
	id     uint64
	name   string       // of the edge type, or of the metric
	dir    pb.Direction // of a list; unspecified: a counter
}

func (s subject) of() *pb.Vertex { return &pb.Vertex{Type: s.vertex, Id: s.id} }

// state is what a subject was at a time.
type state struct {
	edges  []cache.Edge // of a list, oldest first
	value  int64        // of a counter
	exists bool

	acked time.Time // when the write that made it was acknowledged; zero: not yet
}

// has reports whether a list has an edge.
func (s *state) has(peer uint64) bool {
	return slices.ContainsFunc(s.edges, func(e cache.Edge) bool { return e.Peer == peer })
}

// count is the number of edges in a window of time.
func (s *state) count(since, until int64) (n uint64) {
	for _, e := range s.edges {
		if e.Time >= since && e.Time < until {
			n++
		}
	}
	return n
}

// page is the newest edges below one, and whether there are more.
func (s *state) page(below *cache.Edge, size int) (edges []cache.Edge, more bool) {
	for _, e := range slices.Backward(s.edges) {
		if below != nil && e.Compare(*below) >= 0 {
			continue
		}
		if len(edges) == size {
			return edges, true
		}
		edges = append(edges, e)
	}
	return edges, false
}

// chronicle holds all states that the subjects of one writer ever had, in order. States of
// writes under way are in it: they may be seen already.
type chronicle struct {
	mu     sync.Mutex
	states map[subject][]state
	// told is a token of the writer, and the states that it covers.
	told  string
	least map[subject]int
}

func newChronicle() *chronicle {
	return &chronicle{states: map[subject][]state{}, least: map[subject]int{}}
}

// open gives a subject its state number 0, of before all writes.
func (c *chronicle) open(s subject) {
	if len(c.states[s]) == 0 {
		c.states[s] = []state{{acked: time.Unix(0, 0)}}
	}
}

// now is the newest state of a subject. Only the writer may ask, and change what it gets.
func (c *chronicle) now(s subject) state {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open(s)
	st := c.states[s][len(c.states[s])-1]
	st.edges, st.acked = slices.Clone(st.edges), time.Time{}
	return st
}

// begin notes what a write is about to make of subjects.
func (c *chronicle) begin(made map[subject]state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s, st := range made {
		c.open(s)
		c.states[s] = append(c.states[s], st)
	}
}

// end notes that the write is acknowledged, and the writer's token.
func (c *chronicle) end(made map[subject]state, token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range made {
		c.states[s][len(c.states[s])-1].acked = time.Now()
		c.least[s] = len(c.states[s]) - 1
	}
	c.told = token
}

// token is a token of the writer, and which states of its subjects it covers.
func (c *chronicle) token() (string, map[subject]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told, maps.Clone(c.least)
}

// explain returns the number of the oldest state that an answer may be of: it fits, no
// token covers a later one, and the next was not acknowledged before the bound began.
func (c *chronicle) explain(s subject, asked time.Time, least int, fits func(*state) bool) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open(s)
	states, began := c.states[s], asked.Add(-staleness)
	oldest := sort.Search(len(states)-1, func(i int) bool { // acknowledged one after the other
		return states[i+1].acked.IsZero() || !states[i+1].acked.Before(began)
	})
	for i := max(oldest, least); i < len(states); i++ {
		if fits(&states[i]) {
			return i, nil
		}
	}
	for i := len(states) - 1; i >= 0; i-- {
		if fits(&states[i]) {
			return 0, fmt.Errorf("%v was so as number %d of %d; the token covers number %d, the bound number %d", s, i, len(states)-1, least, oldest)
		}
	}
	return 0, fmt.Errorf("%v was never so, in %d states; the newest: %v", s, len(states), states[len(states)-1])
}

// allTime is the end of a window without one.
const allTime = math.MaxInt64
