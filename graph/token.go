package graph

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A token says what its holder has seen: for some slots, the position up to
// which; and for edges acknowledged before their inverse, where the inverse is
// still to come (CACHE.md T1 to T4). Its text is
//
//	base64url( version [1] flags [1] timeline [8] | n | n × (slot, position)
//	           | n | n × (source shard, position, destination slot) | CRC-32C [4] )
type token struct {
	timeline uint64
	others   bool // more slots than fit: reads elsewhere must be linearizable
	seen     []slotPosition
	pending  []pendingInverse
}

type slotPosition struct {
	slot Slot
	pos  uint64
}

// pendingInverse: the list of a vertex in slot dst lacks what shard src sent at pos
// until the cursor of its shard for that one has reached pos. It names the shard, not
// the slot: whoever owns dst later has inherited that cursor, while the slot of the
// source may have gone to a shard that counts on another stream.
type pendingInverse struct {
	src uint32
	pos uint64
	dst Slot
}

const (
	tokenVersion = 2
	tokenOthers  = 1
)

// see adds that the holder has seen slot up to pos.
func (t *token) see(slot Slot, pos uint64) {
	for i := range t.seen {
		if t.seen[i].slot == slot {
			t.seen[i].pos = max(t.seen[i].pos, pos)
			return
		}
	}
	if len(t.seen) >= maxTokenSlots {
		t.others = true
		return
	}
	t.seen = append(t.seen, slotPosition{slot, pos})
}

func (t *token) await(p pendingInverse) {
	for i := range t.pending {
		if t.pending[i].src == p.src && t.pending[i].dst == p.dst {
			t.pending[i].pos = max(t.pending[i].pos, p.pos)
			return
		}
	}
	if len(t.pending) >= maxTokenSlots {
		t.others = true
		return
	}
	t.pending = append(t.pending, p)
}

// position returns what the holder has seen of slot; 0 is nothing.
func (t *token) position(slot Slot) uint64 {
	for i := range t.seen {
		if t.seen[i].slot == slot {
			return t.seen[i].pos
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
	out := token{timeline: timeline}
	for _, text := range texts {
		t, err := parseToken(text)
		if err != nil {
			return "", fmt.Errorf("answer of a node: %w", err)
		}
		if t == nil {
			continue
		}
		if t.timeline != timeline {
			return "", ErrOldTimeline
		}
		out.others = out.others || t.others
		for _, s := range t.seen {
			out.see(s.slot, s.pos)
		}
		for _, p := range t.pending {
			out.await(p)
		}
	}
	return out.encode(), nil
}

func (t *token) encode() string {
	var stack [128]byte
	b := append(stack[:0], tokenVersion, 0)
	if t.others {
		b[1] |= tokenOthers
	}
	b = binary.BigEndian.AppendUint64(b, t.timeline)
	b = binary.AppendUvarint(b, uint64(len(t.seen)))
	for _, s := range t.seen {
		b = binary.AppendUvarint(b, uint64(s.slot))
		b = binary.AppendUvarint(b, s.pos)
	}
	b = binary.AppendUvarint(b, uint64(len(t.pending)))
	for _, p := range t.pending {
		b = binary.AppendUvarint(b, uint64(p.src))
		b = binary.AppendUvarint(b, p.pos)
		b = binary.AppendUvarint(b, uint64(p.dst))
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseToken reads a token's text. The empty text is the empty token.
func parseToken(text string) (*token, error) {
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
	t := &token{others: body[1]&tokenOthers != 0, timeline: binary.BigEndian.Uint64(body[2:])}
	d := decoder{b: body[10:]}
	for n := d.count(); n > 0 && d.err == nil; n-- {
		t.seen = append(t.seen, slotPosition{d.slot(), d.uvarint()})
	}
	for n := d.count(); n > 0 && d.err == nil; n-- {
		t.pending = append(t.pending, pendingInverse{d.uint32(), d.uvarint(), d.slot()})
	}
	if d.done() != nil || len(t.seen) > maxTokenSlots || len(t.pending) > maxTokenSlots {
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
