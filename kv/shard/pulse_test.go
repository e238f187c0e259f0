package shard

import (
	"testing"
	"time"
)

// A pause is noticed by whoever looks first, and stays noticed after the next beat.
func TestAPauseIsNoticed(t *testing.T) {
	p := newPulse(time.Minute)
	p.beat.Store(p.now())
	if p.look() != 0 {
		t.Error("a pause without one")
	}
	p.begun = p.begun.Add(-time.Hour) // as if an hour had passed since the beat
	s := &Shard{node: &Node{pulse: p}}
	if !s.StoodStill() {
		t.Error("the pause was not noticed")
	}
	p.beat.Store(p.now())
	if !s.StoodStill() {
		t.Error("the pause was forgotten with the next beat")
	}
	s.confirmed.Store(p.now())
	if s.StoodStill() {
		t.Error("what was confirmed after the pause is doubted")
	}
}

func TestAPulseThatBeatsSeesNoPause(t *testing.T) {
	p := newPulse(10 * time.Second)
	stop, done := make(chan struct{}), make(chan struct{})
	p.limit = 5 * time.Second
	go func() {
		p.run(stop)
		close(done)
	}()
	close(stop)
	<-done
	if p.look() != 0 {
		t.Error("a pause without one")
	}
}
