package kv

import (
	"bytes"
	"fmt"
	"slices"
)

// Place checks the keys of a Replacement: engines share it.
type Place struct {
	spans []Span
	at    int // place of the span that the keys have reached
	last  []byte
}

// NewPlace returns the check for parts.
func NewPlace(parts Parts) *Place { return &Place{spans: parts.Spans()} }

// Of returns the place in Parts.Spans of the span that key lies in; ErrOutside where
// there is none, it is left already, or the key before it was not smaller.
func (p *Place) Of(key []byte) (int, error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	for ; p.at < len(p.spans); p.at++ {
		if p.spans[p.at].Holds(key) {
			if p.last != nil && bytes.Compare(key, p.last) <= 0 {
				return 0, ErrOutside
			}
			p.last = append(p.last[:0], key...)
			return p.at, nil
		}
		p.last = nil
	}
	return 0, ErrOutside
}

// Rows checks the rows of a Commit: each lies outside of the parts, and no two have
// one key.
func (p *Place) Rows(rows []Row) error {
	seen := make(map[string]bool, len(rows))
	for _, r := range rows {
		if err := checkKey(r.Key); err != nil {
			return err
		}
		if seen[string(r.Key)] || slices.ContainsFunc(p.spans, func(s Span) bool { return s.Holds(r.Key) }) {
			return ErrOutside
		}
		seen[string(r.Key)] = true
	}
	return nil
}

// checkKey refuses what the writing methods of a Batch refuse.
func checkKey(key []byte) error {
	switch {
	case len(key) == 0:
		return ErrEmptyKey
	case len(key) > MaxKeySize:
		return fmt.Errorf("%w: key of %d bytes, limit %d", ErrTooLarge, len(key), MaxKeySize)
	}
	return nil
}

// Holds reports whether key lies in the span.
func (s Span) Holds(key []byte) bool {
	return bytes.Compare(key, s.Lower) >= 0 && (s.Upper == nil || bytes.Compare(key, s.Upper) < 0)
}
