package graph

// Session is what one client has seen, on a door where the connection remembers it and not
// the client: its reads see its writes through any replica. Unlike a token it has room for
// every slot. It is used by one goroutine.
type Session struct {
	timeline uint64
	seen     map[Slot]uint64
	every    *[NumSlots]uint64 // in place of seen, once there is much: faster, and smaller
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
	s.saw(c.Slot(), r.Pos)
}

// manySlots are so many that an array takes less than a map.
const manySlots = 512

func (s *Session) saw(slot Slot, pos uint64) {
	if s.every != nil {
		s.every[slot] = max(s.every[slot], pos)
		return
	}
	s.seen[slot] = max(s.seen[slot], pos)
	if len(s.seen) < manySlots {
		return
	}
	s.every = new([NumSlots]uint64)
	for slot, pos := range s.seen { // any order
		s.every[slot] = pos
	}
	s.seen = nil
}

func (s *Session) position(slot Slot) uint64 {
	if s.every != nil {
		return s.every[slot]
	}
	return s.seen[slot]
}

// Read takes the token of the answer to a read. What that has no room for the session does
// not remember: it is there for the client's own writes.
func (s *Session) Read(text string) {
	t, err := ParseToken(text)
	if err != nil || t == nil || t.Timeline != s.timeline {
		return
	}
	for _, p := range t.Seen {
		s.saw(p.Slot, p.Pos)
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
	for slot := Slot(0); slot < NumSlots && !t.Others; slot++ { // with more than fit, all is said by Others
		if pos := s.position(slot); pos > 0 {
			t.see(slot, pos)
		}
	}
	return t.Encode()
}

// TokenFor is the part of Token that a read of counters needs; empty: none.
func (s *Session) TokenFor(refs []CounterRef) string {
	if s.every == nil && len(s.seen) == 0 && !s.others {
		return ""
	}
	t := Token{Timeline: s.timeline, Others: s.others}
	for i := range refs {
		slot := refs[i].Slot()
		if pos := s.position(slot); pos > 0 {
			t.see(slot, pos)
		}
	}
	if len(t.Seen) == 0 && !t.Others {
		return ""
	}
	return t.Encode()
}
