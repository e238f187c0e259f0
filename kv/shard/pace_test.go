package shard

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// countedPipeline counts what is sent on it.
type countedPipeline struct {
	raft.AppendPipeline
	sent int
}

func (c *countedPipeline) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	c.sent++
	return nil, nil
}

// rested reports whether do has not returned after a while, and how it ends then.
func rested(do func()) (bool, chan struct{}) {
	ended := make(chan struct{})
	go func() { defer close(ended); do() }()
	select {
	case <-ended:
		return false, ended
	case <-time.After(50 * time.Millisecond):
		return true, ended
	}
}

func TestWhoSendsRestsOnlyWhereThereIsNothingToTell(t *testing.T) {
	for name, c := range map[string]struct {
		args         raft.AppendEntriesRequest
		last, heard  uint64
		rests, sends bool
		lacks        bool // the peer says so
	}{
		"nothing":                {raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 9, LeaderCommitIndex: 9}, 9, 2, true, false, false},
		"it has forgotten":       {raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 9, LeaderCommitIndex: 9}, 9, 2, false, true, true},
		"a commit":               {raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 10, LeaderCommitIndex: 10}, 10, 2, false, true, false},
		"an entry":               {raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 9, LeaderCommitIndex: 9, Entries: []*raft.Log{{Index: 10}}}, 10, 2, false, true, false},
		"a later term":           {raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 9, LeaderCommitIndex: 9}, 9, 3, false, true, false},
		"the log has grown":      {raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 9, LeaderCommitIndex: 9}, 10, 2, false, false, false},
		"a commit is still due":  {raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 10, LeaderCommitIndex: 9}, 10, 2, false, false, false},
		"entries it has not yet": {raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 8, LeaderCommitIndex: 9}, 9, 2, false, false, false},
	} {
		p := &peerTransport{pacer: &pacer{rest: time.Minute, last: func() uint64 { return c.last }, stop: make(chan struct{})}}
		p.heard.Store(c.heard)
		pipe := &countedPipeline{}
		b := &boundPipeline{AppendPipeline: pipe, told: 9, heard: &p.heard, lacking: &atomic.Bool{}, pacer: p.pacer}
		b.lacking.Store(c.lacks)
		got, ended := rested(func() { _, _ = b.AppendEntries(&c.args, nil) })
		if got {
			p.pacer.ring() // the log grows
			<-ended
		}
		if got != c.rests || (pipe.sent == 1) != c.sends {
			t.Errorf("%s: rested %v, sent %d", name, got, pipe.sent)
		}
	}
}

func TestARestEndsWithTheTransport(t *testing.T) {
	stop := make(chan struct{})
	p := &pacer{rest: time.Minute, stop: stop}
	got, ended := rested(func() { p.pause(func() bool { return true }) })
	if !got {
		t.Error("no rest")
	}
	close(stop)
	<-ended
}

// An idle leader that was deposed learns of it by a message that it would keep back.
func TestALaterTermEndsARest(t *testing.T) {
	p := &peerTransport{pacer: &pacer{rest: time.Minute, last: func() uint64 { return 9 }, stop: make(chan struct{})}}
	pipe := &countedPipeline{}
	b := &boundPipeline{AppendPipeline: pipe, told: 9, heard: &p.heard, lacking: &atomic.Bool{}, pacer: p.pacer}
	got, ended := rested(func() {
		_, _ = b.AppendEntries(&raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 9, LeaderCommitIndex: 9}, nil)
	})
	p.heard.Store(3)
	p.pacer.ring()
	<-ended
	if !got || pipe.sent != 1 {
		t.Errorf("rested %v, sent %d", got, pipe.sent)
	}
}

// However long a group was idle, what comes then goes out at once.
func TestAnEntryAfterARestGoesOutAtOnce(t *testing.T) {
	f := newFleet(t, 3, func(c *NodeConfig) { c.PeerHeartbeat = 2 * time.Second }).form()
	f.add("a")
	f.agree()
	for range 3 {
		time.Sleep(100 * time.Millisecond)
		begun := time.Now()
		f.add("a")
		f.agree() // the followers learn that it is committed, too
		if took := time.Since(begun); took > time.Second {
			t.Errorf("a write after a rest took %v", took)
		}
	}
}
