package pebblekv

import (
	"testing"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/kvtest"
)

func TestConformance(t *testing.T) {
	for name, profile := range map[string]Profile{"State": State, "Log": Log} {
		t.Run(name, func(t *testing.T) {
			kvtest.Run(t, func(t *testing.T, m *kv.Merger) kv.Store {
				s, err := Open("store", Options{Profile: profile, Merger: m, MemTableBytes: minMemTable, FS: NewCrashFS().FS()})
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}
