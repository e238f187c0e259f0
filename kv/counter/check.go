package counter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lianadb/liana/kv"
)

// CheckSlot proves that the rows of a slot agree: each expiry entry with the
// counter it names, each answer with its entry in the order of forgetting and the
// reverse, and the stored number of answers. What does not hold goes to report;
// the error is a fault of reading. With CheckRow on every counter row the proof is
// whole.
func CheckSlot(cfg Config, view kv.Reader, slot uint16, report func(error)) error {
	c := checker{keys: cfg.keys(), view: view, slot: slot, report: report}
	if err := c.each(kindExpiry, c.expiry); err != nil {
		return err
	}
	if err := c.each(kindForget, c.forget); err != nil {
		return err
	}
	answers := 0
	err := c.each(kindAnswer, func(tail, value []byte) error {
		answers++
		return c.answer(tail, value)
	})
	if err != nil {
		return err
	}
	return c.count(answers)
}

// CheckRow proves that a counter row is well formed and that each of its expiring
// fields has its entry in the slot's expiry order.
func CheckRow(cfg Config, view kv.Reader, slot uint16, key, value []byte, report func(error)) error {
	c := checker{keys: cfg.keys(), view: view, slot: slot, report: report}
	row, err := ParseRow(value)
	if err != nil {
		report(fmt.Errorf("counter row %x: %w", key, err))
		return nil
	}
	for field := range row.n {
		at := row.expireAt(field)
		if at == 0 {
			continue
		}
		tail := binary.BigEndian.AppendUint64(nil, uint64(at))
		tail = append(append(tail, byte(field)), key...)
		if err := c.present(kindExpiry, tail, "counter row %x field %d expires at %d", key, field, at); err != nil {
			return err
		}
	}
	return nil
}

type checker struct {
	keys   keySpace
	view   kv.Reader
	slot   uint16
	report func(error)
}

// each calls fn with what follows `prefix | kind` in each key, and the value.
func (c *checker) each(kind byte, fn func(tail, value []byte) error) (err error) {
	lower := c.keys.local(nil, c.slot, kind)
	it, err := c.view.NewIter(kv.Span{Lower: lower, Upper: c.keys.local(nil, c.slot, kind+1)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.Value()
		if err != nil {
			return err
		}
		if err := fn(it.Key()[len(lower):], value); err != nil {
			return err
		}
	}
	return it.Error()
}

func (c *checker) get(kind byte, tail []byte) ([]byte, error) {
	value, err := c.view.Get([]byte{}, append(c.keys.local(nil, c.slot, kind), tail...))
	if errors.Is(err, kv.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

func (c *checker) present(kind byte, tail []byte, format string, args ...any) error {
	value, err := c.get(kind, tail)
	if err == nil && value == nil {
		c.report(fmt.Errorf("slot %d: %s, and has no row %d of it", c.slot, fmt.Sprintf(format, args...), kind))
	}
	return err
}

func (c *checker) expiry(tail, _ []byte) error {
	if len(tail) < 8 {
		c.report(fmt.Errorf("slot %d: expiry row %x is too short", c.slot, tail))
		return nil
	}
	at := int64(binary.BigEndian.Uint64(tail))
	field, key, err := parseExpiryTail(tail[8:])
	if err != nil {
		c.report(err)
		return nil
	}
	value, err := c.view.Get(nil, key)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return err
	}
	row := Row{}
	if err == nil {
		if row, err = ParseRow(value); err != nil {
			return nil // CheckRow reports it
		}
	}
	if row.expireAt(int(field)) != at {
		c.report(fmt.Errorf("slot %d: counter row %x field %d expires at %d, its queue says %d",
			c.slot, key, field, row.expireAt(int(field)), at))
	}
	return nil
}

func (c *checker) forget(tail, _ []byte) error {
	if len(tail) < 8 {
		c.report(fmt.Errorf("slot %d: forget row %x is too short", c.slot, tail))
		return nil
	}
	return c.present(kindAnswer, tail[8:], "answer %x is to be forgotten at %x", tail[8:], tail[:8])
}

func (c *checker) answer(tail, value []byte) error {
	a, err := parseAnswer(value)
	if err != nil {
		c.report(fmt.Errorf("slot %d: answer %x: %w", c.slot, tail, err))
		return nil
	}
	order := binary.BigEndian.AppendUint64(nil, uint64(a.elapsed))
	return c.present(kindForget, append(order, tail...), "answer %x was given at %d", tail, a.elapsed)
}

func (c *checker) count(answers int) error {
	row, err := c.get(kindAnswers, nil)
	if err != nil {
		return err
	}
	var want []byte
	if answers > 0 {
		want = binary.BigEndian.AppendUint64(nil, uint64(answers))
	}
	if !bytes.Equal(row, want) {
		c.report(fmt.Errorf("slot %d: %d answers, counted as %x", c.slot, answers, row))
	}
	return nil
}
