package kv

import "bytes"

// Place checks the keys of a Replacement: engines share it.
type Place struct {
	parts Parts
	last  []byte
}

// NewPlace returns the check for parts.
func NewPlace(parts Parts) *Place { return &Place{parts: parts} }

// Of returns the place in Parts.Spans of the span that key lies in; ErrOutside where
// there is none, or the key before it was not smaller.
func (p *Place) Of(key []byte) (int, error) {
	if p.last != nil && bytes.Compare(key, p.last) <= 0 {
		return 0, ErrOutside
	}
	p.last = append(p.last[:0], key...)
	for i, s := range p.parts.Spans() {
		if s.Holds(key) {
			return i, nil
		}
	}
	return 0, ErrOutside
}

// Rows checks the rows of a Commit.
func (p *Place) Rows(rows []Row) error {
	for _, r := range rows {
		for _, s := range p.parts.Spans() {
			if s.Holds(r.Key) {
				return ErrOutside
			}
		}
	}
	return nil
}

// Holds reports whether key lies in the span.
func (s Span) Holds(key []byte) bool {
	return bytes.Compare(key, s.Lower) >= 0 && (s.Upper == nil || bytes.Compare(key, s.Upper) < 0)
}
