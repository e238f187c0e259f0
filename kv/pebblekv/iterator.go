package pebblekv

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/lianadb/liana/kv"
)

// iterator keeps its store open from newIter to Close.
type iterator struct {
	s   *Store
	it  *pebble.Iterator // nil after Close
	err error            // why it cannot move any more; nil otherwise
}

func (s *Store) newIter(r pebble.Reader, span kv.Span) (kv.Iterator, error) {
	if err := s.gate.enter(); err != nil {
		return nil, err
	}
	lower, upper := s.bounds(span)
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		s.gate.leave()
		return nil, fmt.Errorf("pebblekv: iterate %x..%x in %s: %w", span.Lower, span.Upper, s.dir, corrupt(err))
	}
	s.iters.Add(1)
	return &iterator{s: s, it: it}, nil
}

// ready reports whether the iterator may move.
func (i *iterator) ready() bool {
	if i.err == nil {
		i.err = i.s.gate.err()
	}
	return i.err == nil
}

func (i *iterator) First() bool            { return i.ready() && i.it.First() }
func (i *iterator) Last() bool             { return i.ready() && i.it.Last() }
func (i *iterator) SeekGE(key []byte) bool { return i.ready() && i.it.SeekGE(orFirst(key)) }
func (i *iterator) SeekLT(key []byte) bool { return i.ready() && i.it.SeekLT(orFirst(key)) }
func (i *iterator) Next() bool             { return i.ready() && i.it.Valid() && i.it.Next() }
func (i *iterator) Prev() bool             { return i.ready() && i.it.Valid() && i.it.Prev() }

func (i *iterator) Key() []byte {
	if i.err != nil || !i.it.Valid() {
		return nil
	}
	return i.it.Key()
}

func (i *iterator) Value() ([]byte, error) {
	if i.err != nil || !i.it.Valid() {
		return nil, i.Error()
	}
	v, err := i.it.ValueAndErr()
	if err == nil {
		v, err = i.s.folder.resolve(i.it.Key(), v)
	}
	if err != nil {
		return nil, i.s.readError(i.it.Key(), err)
	}
	return v, nil
}

func (i *iterator) Error() error {
	if i.err != nil {
		return i.err
	}
	if err := i.it.Error(); err != nil {
		return fmt.Errorf("pebblekv: iterate in %s: %w", i.s.dir, corrupt(err))
	}
	return nil
}

func (i *iterator) Close() error {
	if i.it == nil {
		return kv.ErrClosed
	}
	err := i.it.Close()
	i.it = nil
	i.err = kv.ErrClosed
	i.s.iters.Add(-1)
	i.s.gate.leave()
	if err != nil {
		return fmt.Errorf("pebblekv: iterate in %s: %w", i.s.dir, corrupt(err))
	}
	return nil
}
