package graph

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// setCursor is what a page token of a set query says: how far the driving list was dealt
// with. Its text is bound to its query and signed as that of a listing is, and is none of one:
//
//	base64url( version [1] | query [8] | by b [1] | time [8] | id [8] | read token | MAC [12] )
type setCursor struct {
	ByB   bool
	Time  int64
	ID    uint64
	Token string
}

const (
	setCursorVersion = 2
	setCursorHead    = 1 + 8 + 1 + 8 + 8
)

// print binds a page token to the query that made it: everything but the limits.
func (q *SetQuery) print() uint64 {
	out := []byte{byte(q.Op)}
	for _, s := range [...]*SetSide{&q.A, &q.B} {
		out = binary.BigEndian.AppendUint16(out, uint16(s.List.Vertex.Type))
		out = binary.BigEndian.AppendUint64(out, s.List.Vertex.ID)
		out = binary.BigEndian.AppendUint16(out, uint16(s.List.Type))
		out = append(out, byte(s.List.Dir))
		out = binary.BigEndian.AppendUint64(out, uint64(s.Window.Since))
		out = binary.BigEndian.AppendUint64(out, uint64(s.Window.Until))
	}
	sum := sha256.Sum256(out)
	return binary.BigEndian.Uint64(sum[:])
}

func (c setCursor) encode(key []byte, q *SetQuery) string {
	b := make([]byte, 0, setCursorHead+len(c.Token)+cursorMAC)
	b = append(b, setCursorVersion)
	b = binary.BigEndian.AppendUint64(b, q.print())
	if c.ByB {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(c.Time))
	b = binary.BigEndian.AppendUint64(b, c.ID)
	b = append(b, c.Token...)
	return base64.RawURLEncoding.EncodeToString(append(b, sign(key, b)...))
}

func parseSetCursor(key []byte, q *SetQuery) (*setCursor, error) {
	if q.PageToken == "" {
		return nil, nil
	}
	body, err := openCursor(key, q.PageToken, setCursorVersion, setCursorHead)
	if err != nil {
		return nil, err
	}
	if binary.BigEndian.Uint64(body[1:]) != q.print() {
		return nil, badCursor("belongs to another operation, list or window")
	}
	return &setCursor{
		ByB: body[9] == 1, Time: int64(binary.BigEndian.Uint64(body[10:])), ID: binary.BigEndian.Uint64(body[18:]),
		Token: string(body[setCursorHead:]),
	}, nil
}

// setStart checks a query, fills in what it leaves out, and returns where its page begins;
// nil: at the beginning.
func (g *Graph) setStart(q *SetQuery) (*setCursor, error) {
	if err := checkSet(g.Schema(), q); err != nil {
		return nil, err
	}
	return parseSetCursor(g.cfg.PageKey, q)
}
