package cache_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lianadb/liana/cache"
	"github.com/lianadb/liana/cache/cachetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func hot(t *testing.T, next cache.Source) cache.Source {
	h, err := cache.NewHot(next, cache.NewTopK(64, 1), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestConformance(t *testing.T) {
	for name, build := range map[string]func(*testing.T, *cachetest.Model) cachetest.Stack{
		"Storage": func(t *testing.T, m *cachetest.Model) cachetest.Stack { return cachetest.Stack{Source: m} },
		"Flights": func(t *testing.T, m *cachetest.Model) cachetest.Stack {
			return cachetest.Stack{Source: cache.NewFlights(m), Dense: true}
		},
		"Hot": func(t *testing.T, m *cachetest.Model) cachetest.Stack { return cachetest.Stack{Source: hot(t, m)} },
		"HotOverFlights": func(t *testing.T, m *cachetest.Model) cachetest.Stack {
			return cachetest.Stack{Source: hot(t, cache.NewFlights(m)), Dense: true}
		},
	} {
		t.Run(name, func(t *testing.T) { cachetest.Run(t, build) })
	}
}
