package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/lianadb/liana/kv"
)

// NodeConfig is what the shards of a node share.
type NodeConfig struct {
	// State holds the state of all shards; this package's rows in it begin with
	// 0xFE. Log holds their Raft logs and nothing else. The caller opens both,
	// calls Node.StateFlushed whenever State has flushed, and closes them after
	// Node.Close.
	State, Log kv.Store
	// StablePath is the bolt file for terms and votes; it is made if absent.
	StablePath string
	// NodeID names the node, at most 64 letters, digits, '.', '_' and '-'.
	// Empty means the id the data carries, or a random one for new data.
	NodeID string
	// ClusterID names the cluster to whose replicas streams are opened, in at most 64
	// bytes; streams of another are refused. It may be empty: a node alone.
	ClusterID string
	// Dial connects to the peer port of a node, whose owner hands connections that
	// begin with HelloMagic to Node.Accept. nil: groups of one voter only. An error that is
	// syscall.ECONNREFUSED says that no process listens there.
	Dial func(ctx context.Context, nodeID string) (net.Conn, error)
	// Logger receives the events of the shards and of Raft. Default: none.
	Logger *slog.Logger
	// Clock stamps entries. Default: SystemClock.
	Clock Clock
	// Heartbeat is Raft's heartbeat, election and lease timeout. A replica that
	// hears of no leader wins or loses an election after one to two of it, so a
	// one-voter group leads that long after its start. Default 50 ms; at least 10 ms.
	Heartbeat time.Duration
	// PeerHeartbeat is the same for groups with replicas on several nodes (750 ms): an
	// election begins after 0.75 to 1.5 s of silence, and none for a pause of the collector
	// or the scheduler; at once where the leader's process has ended. At least Heartbeat.
	PeerHeartbeat time.Duration
	// OnFault is called once for a shard that fails on this node, from a
	// goroutine of that shard. It must not close the shard or the node.
	OnFault func(shard uint32, err error)
	Limits  Limits
}

// Limits bounds what a node's shards hold and gather. Zero means the default.
type Limits struct {
	// EntryCommands and EntryBytes bound what is gathered into one log entry
	// (4,096, which is also the most, and 1 MiB). One larger command makes an
	// entry of its own.
	EntryCommands, EntryBytes int
	// Flying is how many entries of a shard may be on their way (2): while one
	// is applied the next is synced.
	Flying int
	// QueueCommands and QueueBytes bound a shard's unanswered proposals
	// (32,768 and 64 MiB).
	QueueCommands, QueueBytes int
	// LogBytes is the size of all logs of the node beyond which the state is
	// flushed so that they can be cut (256 MiB).
	LogBytes int64
	// KeepEntries and KeepBytes bound the entries a log keeps though the state
	// does not need them, for followers that lag: the last 1,024 entries, but
	// no more than 16 MiB a shard. The last entry is always kept.
	KeepEntries uint64
	KeepBytes   int64
	// PinBytes is the size of a log beyond which it is cut though a replica that was
	// sent a snapshot has not caught up (4 GiB). It will need another.
	PinBytes int64
	// TransferBytes is how many bytes a second the node sends in all transfers of states
	// together (0: no bound).
	TransferBytes int64
	// StoreTimeout is how long storing log entries, a term or a vote may take before the
	// shard gives up (10 s). After half of it, or where storing entries takes a tenth of
	// it for all of it, the node hands its leaderships over.
	StoreTimeout time.Duration
}

func setDefault[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

func (c *NodeConfig) setDefaults() {
	setDefault(&c.Logger, slog.New(slog.DiscardHandler))
	if c.Clock == nil {
		c.Clock = SystemClock()
	}
	if c.OnFault == nil {
		c.OnFault = func(uint32, error) {}
	}
	setDefault(&c.Heartbeat, 50*time.Millisecond)
	setDefault(&c.PeerHeartbeat, 750*time.Millisecond)
	l := &c.Limits
	setDefault(&l.EntryCommands, MaxEntryCommands)
	setDefault(&l.EntryBytes, 1<<20)
	setDefault(&l.Flying, 2)
	setDefault(&l.QueueCommands, 32<<10)
	setDefault(&l.QueueBytes, 64<<20)
	setDefault(&l.LogBytes, 256<<20)
	setDefault(&l.KeepEntries, 1024)
	setDefault(&l.KeepBytes, 16<<20)
	setDefault(&l.PinBytes, 4<<30)
	setDefault(&l.StoreTimeout, 10*time.Second)
}

func (c *NodeConfig) validate() error {
	l := c.Limits
	switch {
	case c.State == nil || c.Log == nil || c.StablePath == "":
		return errors.New("shard: a node needs State, Log and StablePath")
	case len(c.NodeID) > maxNodeID || !regexp.MustCompile(`^[A-Za-z0-9._-]*$`).MatchString(c.NodeID):
		return fmt.Errorf("shard: node id %q: at most %d letters, digits, '.', '_' and '-'", c.NodeID, maxNodeID)
	case len(c.ClusterID) > maxClusterID:
		return fmt.Errorf("shard: cluster id of %d bytes: at most %d", len(c.ClusterID), maxClusterID)
	case c.Heartbeat < 10*time.Millisecond, c.PeerHeartbeat < c.Heartbeat:
		return fmt.Errorf("shard: heartbeat %v, with peers %v: at least 10ms, and no less with peers", c.Heartbeat, c.PeerHeartbeat)
	case l.EntryCommands < 1 || l.EntryCommands > MaxEntryCommands:
		return fmt.Errorf("shard: %d commands an entry: 1 to %d", l.EntryCommands, MaxEntryCommands)
	case min(l.EntryBytes, l.Flying, l.QueueCommands, l.QueueBytes) < 1,
		l.LogBytes < 1, l.KeepBytes < 0, l.PinBytes < 0, l.TransferBytes < 0, l.StoreTimeout < time.Millisecond:
		return errors.New("shard: a limit is out of range")
	}
	return nil
}

// Node owns the shards of one process, the bolt file they share and the
// truncation of their logs.
type Node struct {
	cfg       NodeConfig
	stamp     stamp
	bolt      *raftboltdb.BoltStore
	greetings greetings
	throttle  throttle // of transfers
	disk      *disk
	beats     *beats
	pulse     *pulse

	flushes  atomic.Uint64 // of the state, as far as they were told
	logBytes atomic.Int64  // size of all logs
	wake     chan struct{} // of capacity 1: the truncation has something to do
	force    atomic.Bool   // the logs are over their bound
	forceAt  atomic.Int64  // the bound, or what could not be cut and some more
	stop     chan struct{}
	wg       sync.WaitGroup

	mu     sync.Mutex
	closed bool
	shards map[uint32]*Shard
}

// OpenNode opens the node whose rows the three stores hold, or founds one
// where all are new. A store that belongs to another node, or lost its rows,
// is ErrForeign. A bolt file in use by another process is kv.ErrLocked.
func OpenNode(cfg NodeConfig) (*Node, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path:        cfg.StablePath,
		BoltOptions: &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType},
	})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		err = kv.ErrLocked
	}
	if err != nil {
		return nil, fmt.Errorf("stable store %s: %w", cfg.StablePath, err)
	}
	own, err := identify(cfg.State, cfg.Log, bolt, cfg.NodeID)
	if err != nil {
		return nil, errors.Join(err, bolt.Close())
	}
	n := &Node{
		cfg: cfg, stamp: own, bolt: bolt, disk: newDisk(cfg.Limits.StoreTimeout), throttle: throttle{rate: cfg.Limits.TransferBytes},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), shards: make(map[uint32]*Shard),
	}
	n.beats = newBeats(n)
	n.pulse = newPulse(cfg.PeerHeartbeat / 2)
	n.forceAt.Store(cfg.Limits.LogBytes)
	n.wg.Go(n.truncateLoop)
	n.wg.Go(n.watchDisk)
	n.wg.Go(func() { n.pulse.run(n.stop) })
	return n, nil
}

// ID returns the node's id.
func (n *Node) ID() string { return n.stamp.nodeID }

// Close stops the shards, answers what is on its way and returns when all
// goroutines have ended. The stores can be closed then.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	shards := n.list()
	n.mu.Unlock()
	n.greetings.close()

	errs := make([]error, len(shards))
	var wg sync.WaitGroup
	for i, s := range shards {
		wg.Go(func() { errs[i] = s.Close() })
	}
	wg.Wait()
	n.beats.close()
	close(n.stop)
	n.wg.Wait()
	return errors.Join(append(errs, n.bolt.Close())...)
}

// list returns the shards; n.mu is held.
func (n *Node) list() []*Shard {
	shards := make([]*Shard, 0, len(n.shards))
	for _, s := range n.shards {
		shards = append(shards, s)
	}
	return shards
}
