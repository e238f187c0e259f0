package main

import (
	"errors"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestASignalWhileTheDataOpens: the opening may end after it, in time or too late, or
// a second signal may come first.
func TestASignalWhileTheDataOpens(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	run := func(limit time.Duration, openFor time.Duration, openErr error, again bool) (time.Duration, error) {
		signals := make(chan os.Signal, 2)
		release := make(chan struct{})
		defer close(release)
		signals <- syscall.SIGTERM
		if again {
			time.AfterFunc(signalEcho+20*time.Millisecond, func() { signals <- syscall.SIGTERM })
		}
		began := time.Now()
		n, err := openUnlessStopped(limit, signals, log, func() (*node, error) {
			select {
			case <-time.After(openFor):
			case <-release:
			}
			if openErr != nil {
				return nil, openErr
			}
			return &node{cluster: newMembership(host{}, config{}, new(ports), log)}, nil
		})
		if n != nil {
			t.Error("a node, although it was to stop")
		}
		return time.Since(began), err
	}
	planted := errors.New("planted")
	if _, err := run(time.Minute, 20*time.Millisecond, nil, false); err != nil {
		t.Errorf("opened in time: %v", err)
	}
	if _, err := run(time.Minute, 20*time.Millisecond, planted, false); !errors.Is(err, planted) {
		t.Errorf("failed in time: %v", err)
	}
	var forced forcedError
	if took, err := run(100*time.Millisecond, time.Hour, nil, false); !errors.As(err, &forced) || took > 10*time.Second {
		t.Errorf("opened too late: %v after %v", err, took)
	}
	if took, err := run(time.Minute, time.Hour, nil, true); !errors.As(err, &forced) || took > 10*time.Second {
		t.Errorf("second signal: %v after %v", err, took)
	}
}
