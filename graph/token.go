package graph

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Token is what a token says: what its holder has seen: for some slots, the position up to
// which; and for edges acknowledged before their inverse, where the inverse is
// still to come (CACHE.md T1 to T4). Its text is
//
//	base64url( version [1] flags [1] timeline [8] | n | n × (slot, position)
//	           | n | n × (source shard, position, destination slot) | CRC-32C [4] )
type Token struct {
	Timeline uint64
	Others   bool // more slots than fit: reads elsewhere must be linearizable
	Seen     []SlotPosition
	Pending  []PendingInverse
}

// SlotPosition is a position of a slot.
type SlotPosition struct {
	Slot Slot
	Pos  uint64
}

// PendingInverse says that the list of a vertex in slot Dst lacks what shard Src sent at
// Pos until the cursor of its shard for that one has reached Pos. It names the shard, not
// the slot: whoever owns Dst later has inherited that cursor, while the slot of the
// source may have gone to a shard that counts on another stream.
type PendingInverse struct {
	Src uint32
	Pos uint64
	Dst Slot
}

const (
	tokenVersion = 2
	tokenOthers  = 1
)

// see adds that the holder has seen slot up to pos.
func (t *Token) see(slot Slot, pos uint64) {
	for i := range t.Seen {
		if t.Seen[i].Slot == slot {
			t.Seen[i].Pos = max(t.Seen[i].Pos, pos)
			return
		}
	}
	if len(t.Seen) >= maxTokenSlots {
		t.Others = true
		return
	}
	t.Seen = append(t.Seen, SlotPosition{slot, pos})
}

func (t *Token) await(p PendingInverse) {
	for i := range t.Pending {
		if t.Pending[i].Src == p.Src && t.Pending[i].Dst == p.Dst {
			t.Pending[i].Pos = max(t.Pending[i].Pos, p.Pos)
			return
		}
	}
	if len(t.Pending) >= maxTokenSlots {
		t.Others = true
		return
	}
	t.Pending = append(t.Pending, p)
}

// position returns what the holder has seen of slot; 0 is nothing.
func (t *Token) position(slot Slot) uint64 {
	for i := range t.Seen {
		if t.Seen[i].Slot == slot {
			return t.Seen[i].Pos
		}
	}
	return 0
}

// mergeTokens returns the token of all that the holders of tokens have seen. Those of
// another timeline are an error.
func mergeTokens(timeline uint64, texts []string) (string, error) {
	if len(texts) == 1 {
		return texts[0], nil
	}
	out := Token{Timeline: timeline}
	for _, text := range texts {
		t, err := ParseToken(text)
		if err != nil {
			return "", fmt.Errorf("answer of a node: %w", err)
		}
		if t == nil {
			continue
		}
		if t.Timeline != timeline {
			return "", ErrOldTimeline
		}
		out.Others = out.Others || t.Others
		for _, s := range t.Seen {
			out.see(s.Slot, s.Pos)
		}
		for _, p := range t.Pending {
			out.await(p)
		}
	}
	return out.Encode(), nil
}

// Encode returns the text of a token.
func (t *Token) Encode() string {
	var stack [128]byte
	b := append(stack[:0], tokenVersion, 0)
	if t.Others {
		b[1] |= tokenOthers
	}
	b = binary.BigEndian.AppendUint64(b, t.Timeline)
	b = binary.AppendUvarint(b, uint64(len(t.Seen)))
	for _, s := range t.Seen {
		b = binary.AppendUvarint(b, uint64(s.Slot))
		b = binary.AppendUvarint(b, s.Pos)
	}
	b = binary.AppendUvarint(b, uint64(len(t.Pending)))
	for _, p := range t.Pending {
		b = binary.AppendUvarint(b, uint64(p.Src))
		b = binary.AppendUvarint(b, p.Pos)
		b = binary.AppendUvarint(b, uint64(p.Dst))
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseToken reads a token's text. The empty text is none: nil.
func ParseToken(text string) (*Token, error) {
	if text == "" {
		return nil, nil
	}
	bad := func(why string) error { return invalid("token", "as an earlier answer gave it", "%s", why) }
	if len(text) > maxTokenTextBytes {
		return nil, bad("too long")
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 16 {
		return nil, bad("not a token, or cut short")
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) != sum {
		return nil, bad("cut or altered")
	}
	if body[0] != tokenVersion {
		return nil, bad("of another version")
	}
	t := &Token{Others: body[1]&tokenOthers != 0, Timeline: binary.BigEndian.Uint64(body[2:])}
	d := decoder{b: body[10:]}
	for n := d.count(); n > 0 && d.err == nil; n-- {
		t.Seen = append(t.Seen, SlotPosition{d.slot(), d.uvarint()})
	}
	for n := d.count(); n > 0 && d.err == nil; n-- {
		t.Pending = append(t.Pending, PendingInverse{d.uint32(), d.uvarint(), d.slot()})
	}
	if d.done() != nil || len(t.Seen) > maxTokenSlots || len(t.Pending) > maxTokenSlots {
		return nil, bad("malformed")
	}
	return t, nil
}

func (d *decoder) slot() Slot {
	v := d.uvarint()
	if v >= NumSlots {
		d.fail("message: slot %d", v)
	}
	return Slot(v)
}
