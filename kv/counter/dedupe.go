package counter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lianadb/liana/kv"
)

const (
	answerVersion = 1
	answerLen     = 26
	unread        = -1 // of dedupe.counts
)

// answer is what is remembered of an increment with a request id.
type answer struct {
	outcome Outcome
	value   int64
	hash    uint64 // of the arguments
	elapsed int64  // when it was given, dedupe clock
}

func (a answer) append(dst []byte) []byte {
	dst = append(dst, answerVersion, byte(a.outcome))
	dst = binary.BigEndian.AppendUint64(dst, uint64(a.value))
	dst = binary.BigEndian.AppendUint64(dst, a.hash)
	return binary.BigEndian.AppendUint64(dst, uint64(a.elapsed))
}

func parseAnswer(b []byte) (answer, error) {
	if len(b) != answerLen || b[0] != answerVersion || !Outcome(b[1]).remembered() {
		return answer{}, kv.Corruptionf("counter answer %x", b)
	}
	return answer{
		outcome: Outcome(b[1]),
		value:   int64(binary.BigEndian.Uint64(b[2:])),
		hash:    binary.BigEndian.Uint64(b[10:]),
		elapsed: int64(binary.BigEndian.Uint64(b[18:])),
	}, nil
}

// appendRequest appends what names an increment of a request within a slot. The
// length keeps the rows of one id apart from those of its extensions.
func appendRequest(dst []byte, id string, ordinal uint32) []byte {
	dst = append(dst, byte(len(id)))
	dst = append(dst, id...)
	return binary.BigEndian.AppendUint32(dst, ordinal)
}

// dedupe remembers answers by request for a window of the dedupe clock.
type dedupe struct {
	keys    keySpace
	view    kv.Reader
	window  int64 // µs
	limit   int   // answers a slot
	forgets *queue
	pending map[string][]byte // answer rows since the last cut; nil: removed
	counts  []int             // answers by slot, or unread
	counted map[uint16]bool   // slots whose count changed since the last cut
	key     []byte
	tail    []byte
	buf     []byte
}

func openDedupe(keys keySpace, window int64, limit int, view kv.Reader) (*dedupe, error) {
	forgets, err := openQueue(keys, kindForget, view)
	if err != nil {
		return nil, err
	}
	d := &dedupe{
		keys: keys, view: view, window: window, limit: limit, forgets: forgets,
		pending: make(map[string][]byte),
		counts:  make([]int, keys.slots()),
		counted: make(map[uint16]bool),
	}
	for i := range d.counts {
		d.counts[i] = unread
	}
	return d, nil
}

// find returns the remembered answer to a request. One past its window is
// forgotten here, whether or not its turn in the queue has come.
func (d *dedupe) find(slot uint16, id string, ordinal uint32, elapsed int64) (answer, bool, error) {
	d.tail = appendRequest(d.tail[:0], id, ordinal)
	row, err := d.read(slot, d.tail)
	if err != nil || row == nil {
		return answer{}, false, err
	}
	a, err := parseAnswer(row)
	if err != nil {
		return answer{}, false, fmt.Errorf("request %q of slot %d: %w", id, slot, err)
	}
	if a.elapsed+d.window > elapsed {
		return a, true, nil
	}
	d.forgets.remove(slot, a.elapsed, d.tail)
	return answer{}, false, d.drop(slot, d.tail)
}

func (d *dedupe) read(slot uint16, tail []byte) ([]byte, error) {
	d.key = append(d.keys.local(d.key[:0], slot, kindAnswer), tail...)
	if row, ok := d.pending[string(d.key)]; ok {
		return row, nil
	}
	return d.get(d.key)
}

// get reads a row of the view into the buffer; an absent one is nil.
func (d *dedupe) get(key []byte) ([]byte, error) {
	row, err := d.view.Get(d.buf[:0], key)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("counter row %x: %w", key, err)
	}
	d.buf = row
	return row, nil
}

// remember keeps the answer to a request for which find found none.
func (d *dedupe) remember(slot uint16, id string, ordinal uint32, a answer) error {
	d.tail = appendRequest(d.tail[:0], id, ordinal)
	d.key = append(d.keys.local(d.key[:0], slot, kindAnswer), d.tail...)
	d.pending[string(d.key)] = a.append(nil)
	d.forgets.add(slot, a.elapsed, d.tail)
	return d.count(slot, 1)
}

// forget removes up to limit answers of slot that are past their window; none
// unless the oldest has been so for overdue µs.
func (d *dedupe) forget(slot uint16, elapsed, overdue int64, limit int) (int, error) {
	until := elapsed - d.window
	popped, err := d.forgets.pop(slot, until-overdue, until, limit)
	if err != nil {
		return 0, err
	}
	for _, e := range popped {
		if err := d.drop(slot, e.tail); err != nil {
			return 0, err
		}
	}
	return len(popped), nil
}

func (d *dedupe) drop(slot uint16, tail []byte) error {
	d.key = append(d.keys.local(d.key[:0], slot, kindAnswer), tail...)
	d.pending[string(d.key)] = nil
	return d.count(slot, -1)
}

// full tells whether slot has no room for another answer, once some that are
// past their window have made theirs.
func (d *dedupe) full(slot uint16, elapsed int64) (bool, error) {
	n := &d.counts[slot-d.keys.first]
	if err := d.count(slot, 0); err != nil || *n < d.limit {
		return false, err
	}
	_, err := d.forget(slot, elapsed, 0, forgetPerTouch)
	return *n >= d.limit, err
}

// count adds to the number of answers of slot.
func (d *dedupe) count(slot uint16, by int) error {
	n := &d.counts[slot-d.keys.first]
	if *n == unread {
		row, err := d.get(d.keys.local(nil, slot, kindAnswers))
		if err != nil {
			return err
		}
		stored, err := parseCount(row)
		if err != nil {
			return fmt.Errorf("slot %d: %w", slot, err)
		}
		*n = stored
	}
	if *n+by < 0 {
		return kv.Corruptionf("slot %d counts %d answers and has more", slot, *n)
	}
	if by != 0 {
		*n += by
		d.counted[slot] = true
	}
	return nil
}

// parseCount reads a count row; an absent one is 0.
func parseCount(row []byte) (int, error) {
	if row == nil {
		return 0, nil
	}
	if len(row) != 8 {
		return 0, kv.Corruptionf("count of answers %x", row)
	}
	n := binary.BigEndian.Uint64(row)
	if n == 0 || n > 1<<32 {
		return 0, kv.Corruptionf("%d answers", n)
	}
	return int(n), nil
}

func (d *dedupe) cut(b kv.Batch) error {
	for _, key := range slices.Sorted(maps.Keys(d.pending)) {
		if err := write(b, []byte(key), d.pending[key]); err != nil {
			return err
		}
	}
	for _, slot := range slices.Sorted(maps.Keys(d.counted)) {
		var row []byte
		if n := d.counts[slot-d.keys.first]; n > 0 {
			row = binary.BigEndian.AppendUint64(nil, uint64(n))
		}
		if err := write(b, d.keys.local(nil, slot, kindAnswers), row); err != nil {
			return err
		}
	}
	return d.forgets.cut(b)
}

// write sets key, or deletes it where the row is nil.
func write(b kv.Batch, key, row []byte) error {
	if row == nil {
		return b.Delete(key)
	}
	return b.Set(key, row)
}

func (d *dedupe) published(view kv.Reader) {
	d.view = view
	d.forgets.published(view)
	clear(d.pending)
	clear(d.counted)
}

// timeOfID returns the time part, µs since 1970, of a version 7 UUID in its
// 36-character text form. Other ids have none: raw or undashed bytes are as
// likely to be a hash that looks like one.
func timeOfID(id string) (µs int64, ok bool) {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' ||
		id[14] != '7' || digit(id[19])&^3 != 8 {
		return 0, false
	}
	var ms int64
	for i := range len(id) {
		if id[i] == '-' && (i == 8 || i == 13 || i == 18 || i == 23) {
			continue
		}
		v := digit(id[i])
		if v < 0 {
			return 0, false
		}
		if i < 13 {
			ms = ms<<4 | int64(v)
		}
	}
	return ms * 1000, true
}

// digit is the value of a hexadecimal digit, or -1.
func digit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
