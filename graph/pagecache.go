package graph

import (
	"sync"
	"sync/atomic"

	"github.com/lianadb/liana/edgelist"
)

// pageCache holds decoded pages of all shards of a node, bounded by bytes.
//
// Each shard numbers its cuts. An entry knows the cut that wrote it, or under which
// it was read, and is good for every view at or after that one: a page that
// changes is replaced, in the cache, before the view that shows the change is
// published (RULES D1). A reader of an older view passes it by.
type pageCache struct {
	parts [cacheParts]cachePart
	hits  atomic.Uint64
	miss  atomic.Uint64
}

const (
	cacheParts    = 64
	entryOverhead = 112 // bytes of map slot, key and entry
)

// cachePart holds two generations. A hit in the old one moves the entry to the
// young one; when the young one is half the budget it becomes the old one, and
// what was not asked for since then is gone.
type cachePart struct {
	mu         sync.RWMutex
	young, old map[pageKey]cacheEntry
	size       int // of young
	limit      int // of young
}

// pageKey is a page's name in three words, which hash faster than the struct.
type pageKey struct {
	id, kind, page uint64
}

type cacheEntry struct {
	page *edgelist.Page // nil: the page is absent
	cut  uint64
}

func newPageCache(bytes int) *pageCache {
	c := &pageCache{}
	for i := range c.parts {
		p := &c.parts[i]
		p.limit = max(bytes/cacheParts/2, 1)
		p.young, p.old = map[pageKey]cacheEntry{}, map[pageKey]cacheEntry{}
	}
	return c
}

func makePageKey(l *ListKey, id edgelist.PageID) pageKey {
	return pageKey{
		id:   l.Vertex.ID,
		kind: uint64(l.Vertex.Type)<<32 | uint64(l.Type)<<8 | uint64(l.Dir),
		page: uint64(id.Order)<<32 | uint64(id.No),
	}
}

func (c *pageCache) part(k pageKey) *cachePart {
	return &c.parts[mix64(k.id+k.kind*0x9E3779B97F4A7C15+k.page)%cacheParts]
}

// get returns the page as of the view of cut. known is false where the cache
// cannot say.
func (c *pageCache) get(k pageKey, cut uint64) (page *edgelist.Page, known bool) {
	p := c.part(k)
	p.mu.RLock()
	e, ok := p.young[k]
	if !ok {
		if e, ok = p.old[k]; ok {
			p.mu.RUnlock()
			e, ok = p.promote(k)
			p.mu.RLock()
		}
	}
	p.mu.RUnlock()
	if !ok || e.cut > cut {
		c.miss.Add(1)
		return nil, false
	}
	c.hits.Add(1)
	return e.page, true
}

func (p *cachePart) promote(k pageKey) (cacheEntry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.old[k]
	if !ok {
		e, ok = p.young[k]
		return e, ok
	}
	p.put(k, e)
	return e, true
}

// put stores e; p.mu is held.
func (p *cachePart) put(k pageKey, e cacheEntry) {
	if was, ok := p.young[k]; ok {
		p.size -= entrySize(was)
	}
	delete(p.old, k)
	p.young[k] = e
	p.size += entrySize(e)
	if p.size > p.limit {
		p.old, p.young, p.size = p.young, make(map[pageKey]cacheEntry, len(p.young)), 0
	}
}

// forget drops everything.
func (c *pageCache) forget() {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		p.young, p.old, p.size = map[pageKey]cacheEntry{}, map[pageKey]cacheEntry{}, 0
		p.mu.Unlock()
	}
}

func entrySize(e cacheEntry) int {
	if e.page == nil {
		return entryOverhead
	}
	return entryOverhead + e.page.MemSize()
}

// fill stores a page that was read under cut, unless a later cut has begun: the
// page may be out of date then. begun is the number of the shard's last cut.
func (c *pageCache) fill(k pageKey, page *edgelist.Page, cut uint64, begun *atomic.Uint64) {
	p := c.part(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	if begun.Load() != cut {
		return
	}
	p.put(k, cacheEntry{page: page, cut: cut})
}

// replace stores what cut wrote. Only the shard's writer calls it.
func (c *pageCache) replace(k pageKey, page *edgelist.Page, cut uint64) {
	p := c.part(k)
	p.mu.Lock()
	p.put(k, cacheEntry{page: page, cut: cut})
	p.mu.Unlock()
}

// drop forgets a page that was written without being read.
func (c *pageCache) drop(k pageKey) {
	p := c.part(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, ok := p.young[k]; ok {
		p.size -= entrySize(was)
		delete(p.young, k)
	}
	delete(p.old, k)
}

// holds reports whether the cache knows the page.
func (c *pageCache) holds(k pageKey) bool {
	p := c.part(k)
	p.mu.RLock()
	defer p.mu.RUnlock()
	_, ok := p.young[k]
	if !ok {
		_, ok = p.old[k]
	}
	return ok
}

// bytes is what the cache holds now.
func (c *pageCache) bytes() (n int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.RLock()
		n += p.size
		for _, e := range p.old {
			n += entrySize(e)
		}
		p.mu.RUnlock()
	}
	return n
}
