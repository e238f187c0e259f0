package graph

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
)

// watchPlace is how far a watch is with a range of slots: both ends included, all told up
// to a position.
type watchPlace struct {
	First, Last Slot
	Pos         uint64
}

// watchToken is the token of a watch: a place for each range of slots, ascending, all slots
// together. Positions are inherited when shards split, so a token needs no shards. Its text is
//
//	base64url( version [1] timeline [8] | n × (slots, position) (uvarint) | CRC-32C [4] )
type watchToken struct {
	Timeline uint64
	Places   []watchPlace
}

const (
	watchTokenVersion = 1
	maxWatchToken     = 96 << 10 // characters: places of single slots with the longest positions
)

func (t *watchToken) encode() string {
	b := []byte{watchTokenVersion}
	b = binary.BigEndian.AppendUint64(b, t.Timeline)
	for _, p := range t.Places {
		b = binary.AppendUvarint(b, uint64(p.Last-p.First)+1)
		b = binary.AppendUvarint(b, p.Pos)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseWatchToken reads a token's text. The empty text is none: nil.
func parseWatchToken(text string) (*watchToken, error) {
	if text == "" {
		return nil, nil
	}
	bad := func(why string) error { return invalid("resume_token", "as an earlier watch gave it", "%s", why) }
	if len(text) > maxWatchToken {
		return nil, bad("too long")
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 1+8+4 {
		return nil, bad("not a token, or cut short")
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) != sum {
		return nil, bad("cut or altered")
	}
	if body[0] != watchTokenVersion {
		return nil, bad("of another version")
	}
	t := &watchToken{Timeline: binary.BigEndian.Uint64(body[1:])}
	d := decoder{b: body[9:]}
	next := uint64(0)
	for len(d.b) > 0 && d.err == nil {
		n, pos := d.uvarint(), d.uvarint()
		if n == 0 || n > NumSlots-next || pos >= 1<<63 {
			return nil, bad("malformed")
		}
		t.Places = append(t.Places, watchPlace{First: Slot(next), Last: Slot(next + n - 1), Pos: pos})
		next += n
	}
	if d.err != nil || next != NumSlots {
		return nil, bad("malformed")
	}
	return t, nil
}
