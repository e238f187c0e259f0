package graph

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// PageCursor is what a page token says. It continues a listing after the last edge
// that was shown. It holds that edge's place, which need not exist any more, and the
// read token of the first page, so that later pages are never older. Its text is bound
// to its query and signed with the cluster's key:
//
//	base64url( version [1] | query [8] | time [8] | id [8] | read token | MAC [12] )
type PageCursor struct {
	Time  int64
	ID    uint64
	Token string
}

const (
	cursorVersion = 1
	cursorMAC     = 12
	cursorHead    = 1 + 8 + 8 + 8
)

// queryPrint binds a page token to the query that made it: everything but the
// page size.
func queryPrint(q *ListQuery) uint64 {
	var b [48]byte
	out := binary.BigEndian.AppendUint16(b[:0], uint16(q.List.Vertex.Type))
	out = binary.BigEndian.AppendUint64(out, q.List.Vertex.ID)
	out = binary.BigEndian.AppendUint16(out, uint16(q.List.Type))
	out = append(out, byte(q.List.Dir), byte(q.Order))
	out = binary.BigEndian.AppendUint64(out, uint64(q.Window.Since))
	out = binary.BigEndian.AppendUint64(out, uint64(q.Window.Until))
	sum := sha256.Sum256(out)
	return binary.BigEndian.Uint64(sum[:])
}

func (c PageCursor) encode(key []byte, q *ListQuery) string {
	b := make([]byte, 0, cursorHead+len(c.Token)+cursorMAC)
	b = append(b, cursorVersion)
	b = binary.BigEndian.AppendUint64(b, queryPrint(q))
	b = binary.BigEndian.AppendUint64(b, uint64(c.Time))
	b = binary.BigEndian.AppendUint64(b, c.ID)
	b = append(b, c.Token...)
	return base64.RawURLEncoding.EncodeToString(append(b, sign(key, b)...))
}

func sign(key, b []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(b)
	return h.Sum(nil)[:cursorMAC]
}

func badCursor(why string) error {
	return invalid("page_token", "next_page_token of the same listing", "%s", why)
}

// openCursor proves that a page token is of this cluster, of a version, and has a head; it
// returns what it says.
func openCursor(key []byte, text string, version byte, head int) ([]byte, error) {
	if len(text) > 2*maxTokenTextBytes {
		return nil, badCursor("too long")
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < head+cursorMAC || b[0] != version {
		return nil, badCursor("not a page token, or cut short")
	}
	body, mac := b[:len(b)-cursorMAC], b[len(b)-cursorMAC:]
	if !hmac.Equal(mac, sign(key, body)) {
		return nil, badCursor("altered, cut, or from another cluster")
	}
	return body, nil
}

func parseCursor(key []byte, q *ListQuery) (*PageCursor, error) {
	if q.PageToken == "" {
		return nil, nil
	}
	body, err := openCursor(key, q.PageToken, cursorVersion, cursorHead)
	if err != nil {
		return nil, err
	}
	if binary.BigEndian.Uint64(body[1:]) != queryPrint(q) {
		return nil, badCursor("belongs to another vertex, edge type, direction, order or window")
	}
	return &PageCursor{
		Time:  int64(binary.BigEndian.Uint64(body[9:])),
		ID:    binary.BigEndian.Uint64(body[17:]),
		Token: string(body[cursorHead:]),
	}, nil
}

// PageStart checks a query for a page, fills in what it leaves out, and returns where its
// page begins; nil: at the beginning of the list.
func (g *Graph) PageStart(q *ListQuery) (*PageCursor, error) {
	var err error
	if q.List, err = resolveList(g.Schema(), q.List); err != nil {
		return nil, err
	}
	if err := checkQuery(q); err != nil {
		return nil, err
	}
	return parseCursor(g.cfg.PageKey, q)
}

// PageToken is the token of the page of q that begins at c.
func (g *Graph) PageToken(q *ListQuery, c PageCursor) string { return c.encode(g.cfg.PageKey, q) }
