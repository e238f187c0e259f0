package counter

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lianadb/liana/kv"
)

// rows is the working set of counter rows over the view, with the rows used
// lately kept decoded. What it answers does not depend on what it keeps.
//
// Rows are kept in two generations: when the younger is full it becomes the older
// and the older is dropped, so what is used stays. Generations turn only when
// nothing is dirty; between two cuts the young one grows by the rows touched.
type rows struct {
	view  kv.Reader
	limit int // rows of a generation
	young map[string]*cachedRow
	old   map[string]*cachedRow
	dirty []*cachedRow
	buf   []byte
}

type cachedRow struct {
	record
	key   string
	dirty bool
}

func newRows(view kv.Reader, limit int) *rows {
	return &rows{view: view, limit: limit, young: make(map[string]*cachedRow)}
}

// load returns the row of key; an absent one has no present field.
func (c *rows) load(key []byte) (*cachedRow, error) {
	if r := c.young[string(key)]; r != nil {
		return r, nil
	}
	r := c.old[string(key)]
	if r == nil {
		r = &cachedRow{key: string(key)}
		if err := c.read(key, &r.record); err != nil {
			return nil, err
		}
	}
	c.young[r.key] = r
	return r, nil
}

func (c *rows) read(key []byte, into *record) error {
	stored, err := c.view.Get(c.buf[:0], key)
	if errors.Is(err, kv.ErrNotFound) {
		return nil
	}
	if err == nil {
		c.buf = stored
		var row Row
		if row, err = ParseRow(stored); err == nil {
			*into = recordOf(row)
			return nil
		}
	}
	return fmt.Errorf("counter row %x: %w", key, err)
}

// touch marks r as changed since the last cut.
func (c *rows) touch(r *cachedRow) {
	if !r.dirty {
		r.dirty = true
		c.dirty = append(c.dirty, r)
	}
}

// cut writes the dirty rows in key order: the batch is the same on every replica.
func (c *rows) cut(b kv.Batch) error {
	slices.SortFunc(c.dirty, func(x, y *cachedRow) int { return cmp.Compare(x.key, y.key) })
	for _, r := range c.dirty {
		if r.present == 0 {
			if err := b.Delete([]byte(r.key)); err != nil {
				return err
			}
			continue
		}
		c.buf = r.appendTo(c.buf[:0])
		if err := b.Set([]byte(r.key), c.buf); err != nil {
			return err
		}
	}
	return nil
}

func (c *rows) published(view kv.Reader) {
	c.view = view
	for _, r := range c.dirty {
		r.dirty = false
	}
	clear(c.dirty)
	c.dirty = c.dirty[:0]
	if len(c.young) >= c.limit {
		c.young, c.old = make(map[string]*cachedRow, c.limit), c.young
	}
}
