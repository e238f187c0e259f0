package kv_test

import (
	"testing"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/kvtest"
)

func TestMemConformance(t *testing.T) {
	kvtest.Run(t, func(_ *testing.T, m *kv.Merger) kv.Store { return kv.NewMem(m) })
}
