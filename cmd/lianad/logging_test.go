package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// wordy is an error like those of engines, which tell a stack when asked for all.
type wordy struct{ error }

func (wordy) Format(s fmt.State, verb rune) { fmt.Fprint(s, "stack\nof\nkilobytes") }

func TestTheLogHasTheTextOfErrors(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := newLogger(config{LogLevel: "info", LogFormat: format}, &out)
		log.With("a", wordy{errors.New("first")}).Info("m", "b", wordy{errors.New("second")})
		line := out.String()
		if strings.Contains(line, "kilobytes") || !strings.Contains(line, "first") || !strings.Contains(line, "second") {
			t.Errorf("%s: %s", format, line)
		}
	}
}

func TestARepeatedMessageIsLoggedNowAndThen(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(config{LogLevel: "info", LogFormat: "text"}, &out)
	for i := range 1000 {
		log.With("store", i%2).WithGroup("g").Warn("again", "i", i)
	}
	log.Warn("once")
	if again, once := strings.Count(out.String(), "msg=again"), strings.Count(out.String(), "msg=once"); again != calmLines || once != 1 {
		t.Errorf("%d and %d lines", again, once)
	}
}

func TestAMessageSaysHowOftenItWasLeftOut(t *testing.T) {
	s, now := newCalm(slog.DiscardHandler).calmState, time.Now()
	for range calmLines + 30 {
		s.allow("m", now)
	}
	if untold, ok := s.allow("m", now.Add(calmTime-1)); ok {
		t.Errorf("logged, %d untold", untold)
	}
	if untold, ok := s.allow("m", now.Add(calmTime)); !ok || untold != 31 {
		t.Errorf("%v, %d untold", ok, untold)
	}
	if untold, ok := s.allow("m", now.Add(calmTime)); !ok || untold != 0 {
		t.Errorf("%v, %d untold", ok, untold)
	}
	for i := range 3 * calmMessages {
		s.allow(fmt.Sprint(i), now)
	}
	if len(s.seen) > calmMessages {
		t.Errorf("%d messages are remembered", len(s.seen))
	}
}
