package cache

// Token says what its holder has seen: of some slots, the position up to which; and
// of edges acknowledged before their inverse, where the inverse is still to come
// (CACHE.md T1 to T4). The zero Token has seen nothing. Its text is graph's.
type Token struct {
	Timeline uint64
	Others   bool // more slots than fit: only storage can answer for others
	Seen     []SlotPosition
	Pending  []Pending
}

// SlotPosition is a position of a slot.
type SlotPosition struct {
	Slot   Slot
	Number uint64
}

// Pending says that slot Dst may lack what shard Src sent up to Number.
type Pending struct {
	Src    uint32
	Number uint64
	Dst    Slot
}

// MaxTokenSlots is how many positions, and how many pending parts, a token holds.
const MaxTokenSlots = 32

// See adds that the holder has seen slot up to a position. One of another
// timeline is no business of this token, and left out.
func (t *Token) See(slot Slot, at Position) {
	if t.Timeline == 0 {
		t.Timeline = at.Timeline
	}
	if t.Timeline != at.Timeline {
		return
	}
	for i := range t.Seen {
		if t.Seen[i].Slot == slot {
			t.Seen[i].Number = max(t.Seen[i].Number, at.Number)
			return
		}
	}
	if len(t.Seen) >= MaxTokenSlots {
		t.Others = true
		return
	}
	t.Seen = append(t.Seen, SlotPosition{slot, at.Number})
}

// need returns the position that a read of slot must be at. known is false where
// only storage can tell.
func (t *Token) need(slot Slot) (number uint64, known bool) {
	for i := range t.Pending {
		if t.Pending[i].Dst == slot {
			return 0, false
		}
	}
	for i := range t.Seen {
		if t.Seen[i].Slot == slot {
			return t.Seen[i].Number, true
		}
	}
	return 0, !t.Others
}
