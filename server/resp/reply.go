package resp

import (
	"strconv"

	"github.com/tidwall/redcon"
)

// writer puts replies together, in the version of the protocol that the client speaks.
type writer struct {
	b     []byte
	three bool // RESP3
	errs  int  // errors written
}

func (w *writer) int(v int64)        { w.b = redcon.AppendInt(w.b, v) }
func (w *writer) ok()                { w.b = redcon.AppendOK(w.b) }
func (w *writer) simple(text string) { w.b = redcon.AppendString(w.b, text) }
func (w *writer) bulk(b []byte)      { w.b = redcon.AppendBulk(w.b, b) }
func (w *writer) text(s string)      { w.b = redcon.AppendBulkString(w.b, s) }
func (w *writer) array(n int)        { w.b = redcon.AppendArray(w.b, n) }

func (w *writer) flag(b bool) {
	if b {
		w.int(1)
	} else {
		w.int(0)
	}
}

// number is an integer as Redis keeps it: as text.
func (w *writer) number(v int64) {
	var digits [20]byte
	w.bulk(strconv.AppendInt(digits[:0], v, 10))
}

func (w *writer) error(text string) {
	w.errs++
	w.b = redcon.AppendError(w.b, text)
}

func (w *writer) null() {
	if w.three {
		w.b = append(w.b, "_\r\n"...)
		return
	}
	w.b = redcon.AppendNull(w.b)
}

// dict begins a map of n pairs.
func (w *writer) dict(n int) { w.kind('%', n, 2) }

// set begins a set of n members.
func (w *writer) set(n int) { w.kind('~', n, 1) }

// kind begins a form of RESP3, which is an array of each times as many in RESP2.
func (w *writer) kind(mark byte, n, each int) {
	if !w.three {
		w.array(n * each)
		return
	}
	w.b = strconv.AppendInt(append(w.b, mark), int64(n), 10)
	w.b = append(w.b, '\r', '\n')
}

// verbatim is text for people.
func (w *writer) verbatim(s string) {
	if !w.three {
		w.text(s)
		return
	}
	w.b = strconv.AppendInt(append(w.b, '='), int64(len(s)+4), 10)
	w.b = append(append(append(w.b, "\r\ntxt:"...), s...), '\r', '\n')
}
