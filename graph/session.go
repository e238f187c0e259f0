package graph

// Session is what one client has seen, on a door where the connection remembers it and not
// the client: its reads see its writes through any replica. Unlike a token it has room for
// every slot. It is used by one goroutine.
type Session struct {
	timeline uint64
	seen     map[Slot]uint64
	pending  []PendingInverse
	others   bool
}

// NewSession returns a session that has seen nothing.
func NewSession(timeline uint64) *Session {
	return &Session{timeline: timeline, seen: map[Slot]uint64{}}
}

// Edited takes the answer to an edit.
func (s *Session) Edited(c *CounterRef, r *EditResult) {
	if r.Err != nil {
		return
	}
	if r.Pos == 0 {
		s.others = s.others || r.Changed
		return
	}
	slot := c.Slot()
	s.seen[slot] = max(s.seen[slot], r.Pos)
}

// Read takes the token of the answer to a read. What that has no room for the session does
// not remember: it is there for the client's own writes.
func (s *Session) Read(text string) {
	t, err := ParseToken(text)
	if err != nil || t == nil || t.Timeline != s.timeline {
		return
	}
	for _, p := range t.Seen {
		s.seen[p.Slot] = max(s.seen[p.Slot], p.Pos)
	}
}

// Join adds what the holder of a token has seen.
func (s *Session) Join(text string) error {
	t, err := ParseToken(text)
	if err != nil || t == nil {
		return err
	}
	if t.Timeline != s.timeline {
		return ErrOldTimeline
	}
	s.Read(text)
	s.others = s.others || t.Others
	own := Token{Pending: s.pending, Others: s.others}
	for _, p := range t.Pending {
		own.await(p)
	}
	s.pending, s.others = own.Pending, own.Others
	return nil
}

// Token is the token of all that the session has seen.
func (s *Session) Token() string {
	t := Token{Timeline: s.timeline, Others: s.others, Pending: s.pending}
	for slot, pos := range s.seen { // any order: with more than fit, all is said by Others
		t.see(slot, pos)
	}
	return t.Encode()
}

// TokenFor is the part of Token that a read of counters needs; empty: none.
func (s *Session) TokenFor(refs []CounterRef) string {
	if len(s.seen) == 0 && !s.others {
		return ""
	}
	t := Token{Timeline: s.timeline, Others: s.others}
	for i := range refs {
		if pos := s.seen[refs[i].Slot()]; pos > 0 {
			t.see(refs[i].Slot(), pos)
		}
	}
	if len(t.Seen) == 0 && !t.Others {
		return ""
	}
	return t.Encode()
}
