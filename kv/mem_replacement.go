package kv

// memReplacement is a batch that is committed at once.
type memReplacement struct {
	m     *Mem
	b     Batch
	place *Place
}

// Replace implements Store.
func (m *Mem) Replace(parts Parts) (Replacement, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, ErrClosed
	}
	r := &memReplacement{m: m, b: m.NewBatch(), place: NewPlace(parts)}
	for _, s := range parts.Spans() {
		if err := r.b.DeleteRange(s); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *memReplacement) Set(key, value []byte) error {
	if _, err := r.place.Of(key); err != nil {
		return err
	}
	return r.b.Set(key, value)
}

func (r *memReplacement) Commit(rows []Row) error {
	if err := r.place.Rows(rows); err != nil {
		return err
	}
	for _, row := range rows {
		if err := r.b.Set(row.Key, row.Value); err != nil {
			return err
		}
	}
	if err := r.b.Commit(Sync); err != nil {
		return err
	}
	// As with an engine's tables, what was replaced is durable as GetDurable means it.
	return r.m.Flush()
}

func (r *memReplacement) Close() error { return r.b.Close() }
