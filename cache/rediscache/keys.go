package rediscache

import (
	"strconv"
	"strings"
	"unsafe"

	"github.com/lianadb/liana/cache"
)

const keyVersion = "l1"

// gen is a generation of the entries of a slot. Entries of another one are never
// read again.
type gen uint64

func appendTag(b []byte, timeline uint64, s cache.Slot) []byte {
	b = append(b, keyVersion...)
	b = append(b, ':')
	b = strconv.AppendUint(b, timeline, 36)
	b = append(b, ":{"...)
	b = strconv.AppendUint(b, uint64(s), 10)
	return append(b, "}:"...)
}

// headKey is the key of p of a slot.
func headKey(timeline uint64, s cache.Slot) string {
	var stack [64]byte
	return string(append(appendTag(stack[:0], timeline, s), 'p'))
}

func entryKey(timeline uint64, g gen, k *cache.Key) string {
	var stack [128]byte
	return string(appendEntryKey(stack[:0], timeline, g, k))
}

func appendEntryKey(b []byte, timeline uint64, g gen, k *cache.Key) []byte {
	b = appendTag(b, timeline, k.Slot)
	b = strconv.AppendUint(b, uint64(g), 36)
	b = append(b, ':')
	b = strconv.AppendUint(b, uint64(k.Vertex.Type), 36)
	b = append(b, '.')
	b = strconv.AppendUint(b, k.Vertex.ID, 36)
	b = append(b, ':')
	if k.Kind == cache.KindRow {
		return append(b, 'c')
	}
	b = strconv.AppendUint(b, uint64(k.Edge), 36)
	if k.In {
		b = append(b, "i:"...)
	} else {
		b = append(b, "o:"...)
	}
	if k.Kind == cache.KindWindow {
		return append(b, 'l')
	}
	b = strconv.AppendUint(b, k.Chunk, 36)
	return append(b, ":b"...)
}

// keyNames builds many keys at once, in one piece of memory.
type keyNames struct {
	text []byte
	ends []int
}

func newKeyNames(n int) *keyNames {
	const typical = 48
	return &keyNames{make([]byte, 0, n*typical), make([]int, 0, n)}
}

func (n *keyNames) head(timeline uint64, s cache.Slot) {
	n.text = append(appendTag(n.text, timeline, s), 'p')
	n.ends = append(n.ends, len(n.text))
}

func (n *keyNames) entry(timeline uint64, g gen, k *cache.Key) {
	n.text = appendEntryKey(n.text, timeline, g, k)
	n.ends = append(n.ends, len(n.text))
}

// all returns the keys in the order in which they were added.
func (n *keyNames) all() []string {
	// The bytes are not written to any more.
	text, keys, from := unsafe.String(unsafe.SliceData(n.text), len(n.text)), make([]string, len(n.ends)), 0
	for i, end := range n.ends {
		keys[i], from = text[from:end], end
	}
	return keys
}

func leaseKey(timeline uint64, g gen, k *cache.Key) string {
	var stack [128]byte
	return string(append(appendEntryKey(stack[:0], timeline, g, k), ":x"...))
}

// parseEntryKey is the reverse of entryKey. ok is false for all other keys.
func parseEntryKey(text string) (timeline uint64, g gen, k cache.Key, ok bool) {
	parts := strings.Split(text, ":")
	if len(parts) < 6 || parts[0] != keyVersion || len(parts[2]) < 3 {
		return 0, 0, k, false
	}
	ok = true
	number := func(s string, base, bits int) uint64 {
		n, err := strconv.ParseUint(s, base, bits)
		ok = ok && err == nil
		return n
	}
	timeline = number(parts[1], 36, 64)
	k.Slot = cache.Slot(number(parts[2][1:len(parts[2])-1], 10, 16))
	g = gen(number(parts[3], 36, 64))
	kind, id, _ := strings.Cut(parts[4], ".")
	k.Vertex = cache.Vertex{Type: uint16(number(kind, 36, 16)), ID: number(id, 36, 64)}
	switch last := parts[len(parts)-1]; {
	case len(parts) == 6 && last == "c":
		k.Kind = cache.KindRow
		return timeline, g, k, ok
	case len(parts) == 7 && last == "l":
		k.Kind = cache.KindWindow
	case len(parts) == 8 && last == "b":
		k.Kind, k.Chunk = cache.KindChunk, number(parts[6], 36, 64)
	default: // a lease
		return 0, 0, k, false
	}
	edge, in := strings.CutSuffix(parts[5], "i")
	k.Edge, k.In = uint16(number(strings.TrimSuffix(edge, "o"), 36, 16)), in
	return timeline, g, k, ok
}
