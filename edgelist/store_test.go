package edgelist

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// memStore keeps a list the way an engine does: a value and a chain of operands
// a page. It serves decoded pages the way a cache does, sometimes.
type memStore struct {
	rng    *rand.Rand
	pages  map[PageID]*chain
	cache  map[PageID]*Page
	loads  int // calls of Page
	merges int
	puts   int
	bytes  int // handed out
	// cached is the chance in percent that a page is served from the cache.
	cached int
}

type chain struct {
	base     []byte
	operands [][]byte
}

func newStore(seed uint64, cached int) *memStore {
	return &memStore{
		rng:   rand.New(rand.NewPCG(seed, 1)),
		pages: map[PageID]*chain{}, cache: map[PageID]*Page{}, cached: cached,
	}
}

func (s *memStore) Page(id PageID) (*Page, error) {
	s.loads++
	if p := s.cache[id]; p != nil && s.rng.IntN(100) < s.cached {
		return p, nil
	}
	c := s.pages[id]
	if c == nil {
		return nil, nil
	}
	v, err := s.fold(c)
	if err != nil {
		return nil, err
	}
	p, err := DecodePage(v)
	if err == nil {
		s.cache[id] = p
	}
	return p, err
}

// fold joins a chain in random groups, as compactions do, and sometimes keeps
// the result.
func (s *memStore) fold(c *chain) ([]byte, error) {
	ops := slices.Clone(c.operands)
	for len(ops) > 1 && s.rng.IntN(2) == 0 {
		i := s.rng.IntN(len(ops) - 1)
		n := 2 + s.rng.IntN(min(3, len(ops)-i-1))
		n = min(n, len(ops)-i)
		joined, err := Combine(ops[i : i+n])
		if err != nil {
			return nil, err
		}
		ops = slices.Replace(ops, i, i+n, joined)
	}
	base := c.base
	if len(ops) > 0 && s.rng.IntN(2) == 0 {
		var err error
		if base, err = Fold(base, ops[:1]); err != nil {
			return nil, err
		}
		ops = ops[1:]
	}
	v := base
	if len(ops) > 0 {
		var err error
		if v, err = Fold(base, ops); err != nil {
			return nil, err
		}
	}
	if s.rng.IntN(4) == 0 {
		c.base, c.operands = v, nil
	} else {
		c.base, c.operands = base, ops
	}
	return bytes.Clone(v), nil
}

func (s *memStore) Put(id PageID, p *Page, value []byte) error {
	if IsOperand(value) {
		return fmt.Errorf("value of page %s looks like an operand", id)
	}
	s.puts++
	s.bytes += len(value)
	s.pages[id], s.cache[id] = &chain{base: bytes.Clone(value)}, p
	return nil
}

func (s *memStore) Merge(id PageID, p *Page, operand []byte) error {
	if !IsOperand(operand) {
		return fmt.Errorf("operand of page %s looks like a value", id)
	}
	if s.pages[id] == nil {
		return fmt.Errorf("operand for page %s, which is absent", id)
	}
	s.merges++
	s.bytes += len(operand)
	s.pages[id].operands = append(s.pages[id].operands, bytes.Clone(operand))
	s.cache[id] = p
	return nil
}

func (s *memStore) Remove(id PageID) error {
	if s.pages[id] == nil {
		return fmt.Errorf("page %s removed, which is absent", id)
	}
	delete(s.pages, id)
	delete(s.cache, id)
	return nil
}

func (s *memStore) ids() ([]PageID, error) {
	var ids []PageID
	for id := range s.pages {
		ids = append(ids, id)
	}
	return ids, nil
}

// check proves the list sound, from the bytes and from the cache.
func (s *memStore) check(t testing.TB) Stats {
	t.Helper()
	cached := s.cached
	s.cached = 0
	a, err := Check(s, s.ids)
	if err != nil {
		t.Fatalf("check of stored bytes: %v", err)
	}
	s.cached = 100
	if b, err := Check(s, s.ids); err != nil || a != b {
		t.Fatalf("check of cached pages: %v\n%+v\n%+v", err, a, b)
	}
	s.cached = cached
	return a
}
