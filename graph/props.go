package graph

import (
	"encoding/binary"
	"fmt"
	"sort"
	"unicode/utf8"

	"github.com/lianadb/liana/kv"
)

// EncodeProps makes the stored form of properties: pairs of length-prefixed
// name and value, sorted by name, so that equal properties have equal bytes.
// None encode as nil.
func EncodeProps(m map[string]string) ([]byte, error) {
	if len(m) == 0 {
		return nil, nil
	}
	names := make([]string, 0, len(m))
	size := 0
	for k, v := range m {
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return nil, invalid("properties", "non-empty names, UTF-8", "property %q", k)
		}
		names = append(names, k)
		size += len(k) + len(v) + 2
	}
	limit := fmt.Sprintf("at most %d bytes encoded", MaxProps)
	if size > MaxProps {
		return nil, invalid("properties", limit, "%d bytes", size)
	}
	sort.Strings(names)
	b := make([]byte, 0, size)
	for _, k := range names {
		b = appendBytes(b, k)
		b = appendBytes(b, m[k])
	}
	if len(b) > MaxProps {
		return nil, invalid("properties", limit, "%d bytes", len(b))
	}
	return b, nil
}

// DecodeProps is the inverse of EncodeProps. Bytes that it did not make are an
// error marked kv.ErrCorruption.
func DecodeProps(b []byte) (map[string]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	last := ""
	for len(b) > 0 {
		k, rest, ok := cutBytes(b)
		if !ok {
			return nil, kv.Corruptionf("properties: cut short")
		}
		v, rest, ok := cutBytes(rest)
		if !ok || string(k) <= last {
			return nil, kv.Corruptionf("properties: cut short or out of order")
		}
		last = string(k)
		m[last] = string(v)
		b = rest
	}
	return m, nil
}

func appendBytes[T ~string | ~[]byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func cutBytes(b []byte) (s, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, false
	}
	return b[w : w+int(n) : w+int(n)], b[w+int(n):], true
}
