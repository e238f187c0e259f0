package counter

import (
	"errors"
	"strings"
	"testing"

	"github.com/lianadb/liana/kv"
)

var errDisk = errors.New("disk on fire")

// faulty fails the reads of a store from the nth on.
type faulty struct {
	kv.Reader
	left int
}

func (f *faulty) fail() error {
	if f.left--; f.left < 0 {
		return errDisk
	}
	return nil
}

func (f *faulty) Get(dst, key []byte) ([]byte, error) {
	if err := f.fail(); err != nil {
		return dst, err
	}
	return f.Reader.Get(dst, key)
}

func (f *faulty) NewIter(span kv.Span) (kv.Iterator, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	return f.Reader.NewIter(span)
}

// Whatever read fails, the method that needed it fails with it.
func TestEveryReadFaultSurfaces(t *testing.T) {
	cfg := testConfig()
	r := newRig(t, cfg)
	r.incr(Increment{Ref: ref(1, 0), Delta: 1, ExpireAt: 5, RequestID: "a"}, at(1))
	r.incr(Increment{Ref: ref(9, 0), Delta: 1, ExpireAt: 5, RequestID: "b"}, at(1))
	r.cut()
	late := at(700 * sec)
	surfaced := 0
	for n := range 100 {
		f := &faulty{Reader: r.store, left: n}
		err := func() error {
			s, err := Open(cfg, f)
			if err != nil {
				return err
			}
			if _, err := s.Incr(Increment{Ref: ref(1, 0), Delta: 1, RequestID: "c"}, at(2)); err != nil {
				return err
			}
			if _, err := s.Set(Assignment{Ref: ref(17, 0)}, late); err != nil {
				return err
			}
			if _, err := s.Delete(ref(25, 0), late); err != nil {
				return err
			}
			if _, err := s.ApplyDerived(ref(2, 0), 1); err != nil {
				return err
			}
			if _, err := s.Get(ref(3, 0), 1); err != nil {
				return err
			}
			_, err = s.Sweep(late, 10)
			return err
		}()
		if err == nil {
			if f.left < 0 {
				t.Fatalf("the fault of read %d was swallowed", n)
			}
			break
		}
		if !errors.Is(err, errDisk) {
			t.Fatalf("read %d: %v", n, err)
		}
		surfaced++
	}
	if surfaced < 20 || surfaced == 100 {
		t.Fatalf("%d reads failed", surfaced)
	}
}

func (r *rig) write(key, value []byte) {
	r.t.Helper()
	b := r.store.NewBatch()
	defer b.Close()
	if err := write(b, key, value); err != nil {
		r.t.Fatal(err)
	}
	if err := b.Commit(kv.NoSync); err != nil {
		r.t.Fatal(err)
	}
}

// damages are rows that contradict each other. The state machine stops at the
// ones it meets; the proof finds all.
func TestDamageIsFound(t *testing.T) {
	local := func(kind byte, tail string) []byte {
		return append(append(testPrefix(nil, 1), kind), tail...)
	}
	request := "\x01a\x00\x00\x00\x00"
	second := "\x00\x00\x00\x00\x00\x00\x00\x01"
	for _, d := range []struct {
		name       string
		key, value []byte
		report     string // of the proof
		stops      bool   // the next increment of the slot, late
	}{
		{"expiry row gone", local(kindExpiry, "\x00\x00\x00\x00\x00\x00\x00\x05\x00"+string(ref(1, 0).Row)), nil, "has no row 1", false},
		{"counter row gone", ref(1, 0).Row, nil, "expires at 0, its queue says 5", true},
		{"counter row cut", ref(1, 0).Row, []byte{1, 2, 3}, "corruption", true},
		{"expiry row of no field", local(kindExpiry, second+"\x40x"), []byte{}, "counter expiry 40", true},
		{"expiry row cut", local(kindExpiry, "\x00"), []byte{}, "too short", false},
		{"answer gone", local(kindAnswer, request), nil, "is to be forgotten", false},
		{"answer cut", local(kindAnswer, request), []byte{1}, "counter answer", true},
		{"forget row gone", local(kindForget, second+request), nil, "has no row 2", false},
		{"forget row cut", local(kindForget, "\x01"), []byte{}, "too short", true},
		{"count gone", local(kindAnswers, ""), nil, "1 answers, counted as", true},
		{"count wrong", local(kindAnswers, ""), []byte{0, 0, 0, 0, 0, 0, 0, 9}, "1 answers, counted as", false},
		{"count of 0", local(kindAnswers, ""), make([]byte, 8), "1 answers, counted as", true},
		{"count cut", local(kindAnswers, ""), []byte{7}, "1 answers, counted as", true},
	} {
		t.Run(d.name, func(t *testing.T) {
			r := newRig(t, testConfig())
			r.incr(Increment{Ref: ref(1, 0), Delta: 1, ExpireAt: 5, RequestID: "a"}, at(1))
			r.cut()
			if faults := r.faults(); len(faults) > 0 {
				t.Fatal(faults)
			}
			r.write(d.key, d.value)
			faults := r.faults()
			if len(faults) == 0 || !strings.Contains(errors.Join(faults...).Error(), d.report) {
				t.Errorf("the proof finds %v, not %q", faults, d.report)
			}
			s, err := Open(r.cfg, r.store)
			if err == nil {
				_, err = s.Incr(Increment{Ref: ref(1, 0), Delta: 1, RequestID: "a"}, Clock{Now: 9})
			}
			if err == nil {
				_, err = s.Incr(Increment{Ref: ref(1, 0), Delta: 1, RequestID: "b"}, at(700*sec))
			}
			if d.stops != errors.Is(err, kv.ErrCorruption) {
				t.Errorf("an increment says %v", err)
			}
		})
	}
}

func TestWhatTheCallerMustCheckIsAnError(t *testing.T) {
	r := newRig(t, testConfig())
	for _, in := range []Increment{
		{Ref: Ref{Slot: 8, Row: []byte("x")}},
		{Ref: Ref{Slot: 1}},
		{Ref: Ref{Slot: 1, Row: make([]byte, MaxRowKey+1)}},
		{Ref: Ref{Slot: 1, Row: []byte("x"), Field: MaxFields}},
		{Ref: ref(1, 0), RequestID: strings.Repeat("x", MaxRequestID+1)},
	} {
		if _, err := r.Incr(in, at(1)); err == nil || errors.Is(err, kv.ErrCorruption) {
			t.Errorf("slot %d, row of %d bytes, field %d: %v", in.Slot, len(in.Row), in.Field, err)
		}
	}
	for _, cfg := range []Config{{}, {Prefix: testPrefix}, {Prefix: testPrefix, FirstSlot: 4, EndSlot: 4}, {Prefix: testPrefix, FirstSlot: 5, EndSlot: 4}} {
		if _, err := Open(cfg, r.store); err == nil {
			t.Errorf("opened with slots %d to %d", cfg.FirstSlot, cfg.EndSlot)
		}
	}
}
