package graph

import "time"

// backlog is what the receiver has not acknowledged: bytes, and the age of the
// oldest row.
func (s *sender) backlog() (bytes int, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unacked) > 0 {
		age = time.Since(s.unacked[0].at)
	}
	return s.bytes, age
}

// countBytes is how many bytes of rows countStored counts as one.
const countBytes = 64 << 10

// countStored counts what the store holds of the stream and nobody has counted: rows from
// before this replica led, and those that a split has moved. Admission knows what is owed
// then (RULES B2). How long it has been owed is not known, but for what was counted before.
func (s *sender) countStored() error {
	s.mu.Lock()
	if !s.uncounted {
		s.mu.Unlock()
		return nil
	}
	at, after, upTo := time.Now(), s.acked, s.given
	if len(s.unacked) > 0 {
		at = s.unacked[0].at
	}
	s.unacked, s.bytes, s.uncounted = nil, 0, false // rows that come meanwhile are past upTo
	s.mu.Unlock()
	counted, err := s.stored(after, upTo, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.uncounted { // moved again
		s.uncounted = true
		return err
	}
	for len(counted) > 0 && counted[0].last <= s.acked {
		counted = counted[1:]
	}
	s.unacked = append(counted, s.unacked...)
	for _, r := range counted {
		s.bytes += r.bytes
	}
	return nil
}

// stored tells of rows in the store, some at a time.
func (s *sender) stored(after, upTo uint64, at time.Time) ([]unackedRow, error) {
	v, err := s.o.m.acquire()
	if err != nil {
		return nil, err
	}
	defer v.release()
	var out []unackedRow
	for after < upTo {
		rows, last, err := v.outboxRows(s.to, after, upTo, countBytes)
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			break
		}
		r := unackedRow{last: last, rows: len(rows), at: at}
		for _, row := range rows {
			r.bytes += len(row)
		}
		out, after = append(out, r), last
	}
	return out, nil
}
