package tiers

import (
	"sync/atomic"

	"github.com/lianadb/liana/server"
)

// Figures are the numbers of this node's caches. They count from its start.
func (p *Panel) Figures() []server.CacheFigure {
	var f figures
	if p.Reader != nil {
		f.gateway(p)
	}
	if p.Feeder != nil {
		s := p.Feeder.Stats()
		f.count("feeder", "changes_total", "Changes sent to Redis; again after a failure.", &s.Changes)
		f.count("feeder", "pushes_total", "Calls that brought changes to Redis.", &s.Pushes)
		f.count("feeder", "opened_total", "Slots that Redis knew nothing of.", &s.Opened)
		f.count("feeder", "emptied_total", "Slots whose entries were all forgotten.", &s.Regens)
		f.count("feeder", "faults_total", "Calls to Redis that failed.", &s.Faults)
		f.gauge("feeder", "breakers_open", breakersHelp, float64(p.Feeder.OpenBreakers()))
		f.gauge("feeder", "lag_seconds", "For how long there have been changes that are not in Redis.", p.Feeder.Lag().Seconds())
	}
	return f
}

type figures []server.CacheFigure

func (f *figures) count(tier, name, help string, v *atomic.Uint64) {
	*f = append(*f, server.CacheFigure{Tier: tier, Name: name, Help: help, Value: float64(v.Load())})
}

func (f *figures) gauge(tier, name, help string, v float64) {
	*f = append(*f, server.CacheFigure{Tier: tier, Name: name, Help: help, Value: v})
}

func (f *figures) miss(tier, reason string, v *atomic.Uint64) {
	*f = append(*f, server.CacheFigure{
		Tier: tier, Name: "misses_total", Reason: reason, Value: float64(v.Load()),
		Help: "What a tier was asked for in vain, by reason.",
	})
}

// The help of figures that several tiers have.
const (
	hitsHelp     = "What a tier was asked for and had."
	breakersHelp = "Redis servers that are left alone, as they do not answer."
)

func (f *figures) gateway(p *Panel) {
	r := p.Reader.Stats()
	f.count("reader", "hits_total", hitsHelp, &r.Answered)
	f.count("reader", "asked_total", "Questions that the storage answered.", &r.Asked)
	f.count("reader", "linearizable_total", "Questions that pass caches by.", &r.Linearizable)
	f.miss("reader", "unpolled", &r.Unpolled)
	f.miss("reader", "untold", &r.Untold)
	h := p.Hot.Stats()
	f.count("hot", "hits_total", hitsHelp, &h.Hits)
	f.miss("hot", "absent", &h.Absent)
	f.miss("hot", "stale", &h.Stale)
	f.gauge("hot", "bytes", "Memory of the copies, about.", float64(p.Hot.Bytes()))
	t := p.Tier.Stats()
	f.count("redis", "hits_total", hitsHelp, &t.Hits)
	f.miss("redis", "absent", &t.Absent)
	f.miss("redis", "behind", &t.Behind)
	f.miss("redis", "closed", &t.Closed)
	f.miss("redis", "failed", &t.Failed)
	f.miss("redis", "corrupt", &t.Corrupt)
	f.count("redis", "fills_total", "Entries stored in Redis.", &t.Fills)
	f.count("redis", "refused_total", "Entries that came too late to be stored.", &t.Refused)
	f.count("redis", "limited_total", "Entries that were not loaded, as another gateway does, or it was too often.", &t.Limited)
	f.gauge("redis", "breakers_open", breakersHelp, float64(p.Tier.OpenBreakers()))
	a := p.Auditor.Stats()
	f.count("audit", "equal_total", "Sampled entries that were what the storage holds.", &a.Equal)
	f.count("audit", "wrong_total", "Sampled entries that were not.", &a.Wrong)
	f.count("audit", "skipped_total", "Sampled entries whose slot had changed.", &a.Skipped)
	var samples uint64
	for i := range a.Ages {
		samples += a.Ages[i].Load()
	}
	f.gauge("audit", "age_seconds_count", "Samples whose age was taken.", float64(samples))
	f.gauge("audit", "age_seconds_sum", "How old these were at most, together.", float64(a.AgeSum.Load())/1e9)
}
