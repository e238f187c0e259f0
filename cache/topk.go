package cache

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// TopK finds the keys that are touched most, in bounded memory: counters for some
// keys, where a new key takes over the smallest counter and its count (the
// Space-Saving algorithm). A count is too high by at most what was taken over, so
// count - over is what a key surely had. Counts halve each second.
type TopK struct {
	threshold uint64
	weight    uint64 // of one touch that is counted
	now       func() time.Time

	mu     sync.Mutex
	byKey  map[Key]*topCount
	counts topHeap
	size   int
	halved time.Time
}

type topCount struct {
	key   Key
	count uint64
	over  uint64
	place int // in the heap
}

const topHalving = time.Second

// NewTopK returns a TopK with counters for size keys. A key is hot once it was
// surely touched threshold times, older touches counting less. Where the threshold
// allows, only some touches are counted, each for several.
func NewTopK(size int, threshold uint64) *TopK {
	return &TopK{
		threshold: threshold, weight: max(1, threshold/samplesAHotKey), now: time.Now,
		byKey: make(map[Key]*topCount, size), size: size,
	}
}

// samplesAHotKey is how many touches are counted at least before a key is hot.
const samplesAHotKey = 8

// Touch counts one use of a key.
func (t *TopK) Touch(k Key) {
	if t.weight > 1 && rand.Uint64N(t.weight) != 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.halve()
	t.count(k)
}

func (t *TopK) count(k Key) {
	c := t.byKey[k]
	switch {
	case c != nil:
	case len(t.counts) < t.size:
		c = &topCount{key: k, place: len(t.counts)}
		t.byKey[k] = c
		heap.Push(&t.counts, c)
	default:
		c = t.counts[0]
		delete(t.byKey, c.key)
		t.byKey[k] = c
		c.key, c.over = k, c.count
	}
	c.count += t.weight
	heap.Fix(&t.counts, c.place)
}

// halve ages the counts. Halving keeps their order, and so the heap's.
func (t *TopK) halve() {
	now := t.now()
	if t.halved.IsZero() {
		t.halved = now
	}
	n := now.Sub(t.halved) / topHalving
	if n == 0 {
		return
	}
	t.halved = now
	for _, c := range t.counts {
		c.count >>= min(n, 63)
		c.over >>= min(n, 63)
	}
}

// IsHot reports whether a key is among the most touched.
func (t *TopK) IsHot(k Key) bool {
	return t.areHot([]Want{{Key: k}}, []int{0})[0]
}

// areHot reports it for some wants.
func (t *TopK) areHot(wants []Want, some []int) []bool {
	hot := make([]bool, len(some))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.halve()
	for j, i := range some {
		c := t.byKey[wants[i].Key]
		hot[j] = c != nil && c.count-c.over >= t.threshold
	}
	return hot
}

// HotKey is a key and how often it was surely touched, older touches counting less.
type HotKey struct {
	Key     Key
	Touches uint64
}

// Top returns the n most touched keys, the most touched first.
func (t *TopK) Top(n int) []HotKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.halve()
	top := make([]HotKey, 0, len(t.counts))
	for _, c := range t.counts {
		top = append(top, HotKey{c.key, c.count - c.over})
	}
	slices.SortFunc(top, func(a, b HotKey) int { return cmp.Compare(b.Touches, a.Touches) })
	return top[:min(n, len(top))]
}

// topHeap has the smallest count at its root.
type topHeap []*topCount

func (h topHeap) Len() int           { return len(h) }
func (h topHeap) Less(i, j int) bool { return h[i].count < h[j].count }
func (h topHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *topHeap) Push(x any) { *h = append(*h, x.(*topCount)) }

// Pop implements heap.Interface. Counters are never taken out.
func (h *topHeap) Pop() any { panic("bug: TopK never shrinks") }
