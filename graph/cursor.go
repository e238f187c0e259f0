package graph

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// A page token continues a listing after the last edge that was shown. It
// holds that edge's place, which need not exist any more, and the read token
// of the first page, so that later pages are never older. It is bound to its
// query and signed with the cluster's key:
//
//	base64url( version [1] | query [8] | time [8] | id [8] | read token | MAC [12] )
type pageCursor struct {
	time  int64
	id    uint64
	token string
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

func (c pageCursor) encode(key []byte, q *ListQuery) string {
	b := make([]byte, 0, cursorHead+len(c.token)+cursorMAC)
	b = append(b, cursorVersion)
	b = binary.BigEndian.AppendUint64(b, queryPrint(q))
	b = binary.BigEndian.AppendUint64(b, uint64(c.time))
	b = binary.BigEndian.AppendUint64(b, c.id)
	b = append(b, c.token...)
	return base64.RawURLEncoding.EncodeToString(append(b, sign(key, b)...))
}

func sign(key, b []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(b)
	return h.Sum(nil)[:cursorMAC]
}

func parseCursor(key []byte, q *ListQuery) (*pageCursor, error) {
	if q.PageToken == "" {
		return nil, nil
	}
	bad := func(why string) error {
		return invalid("page_token", "next_page_token of the same listing", "%s", why)
	}
	if len(q.PageToken) > 2*maxTokenTextBytes {
		return nil, bad("too long")
	}
	b, err := base64.RawURLEncoding.DecodeString(q.PageToken)
	if err != nil || len(b) < cursorHead+cursorMAC || b[0] != cursorVersion {
		return nil, bad("not a page token, or cut short")
	}
	body, mac := b[:len(b)-cursorMAC], b[len(b)-cursorMAC:]
	if !hmac.Equal(mac, sign(key, body)) {
		return nil, bad("altered, cut, or from another cluster")
	}
	if binary.BigEndian.Uint64(body[1:]) != queryPrint(q) {
		return nil, bad("belongs to another vertex, edge type, direction, order or window")
	}
	return &pageCursor{
		time:  int64(binary.BigEndian.Uint64(body[9:])),
		id:    binary.BigEndian.Uint64(body[17:]),
		token: string(body[cursorHead:]),
	}, nil
}
