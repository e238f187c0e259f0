package shard

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/pebblekv"
)

const killDirEnv = "LIANA_SHARD_KILL_DIR"

// openDisk opens a node on Pebble in dir, wired as in production, with small
// memtables so that flushes and truncations happen. done closes it all.
func openDisk(dir string) (n *Node, state kv.Store, done func() error, err error) {
	var node atomic.Pointer[Node]
	st, err := pebblekv.Open(filepath.Join(dir, "state"), pebblekv.Options{MemTableBytes: 256 << 10, OnFlush: func() {
		if n := node.Load(); n != nil {
			n.StateFlushed()
		}
	}})
	if err != nil {
		return nil, nil, nil, err
	}
	log, err := pebblekv.Open(filepath.Join(dir, "log"), pebblekv.Options{Profile: pebblekv.Log})
	if err != nil {
		return nil, nil, nil, errors.Join(err, st.Close())
	}
	n, err = OpenNode(NodeConfig{
		State: st, Log: log, StablePath: filepath.Join(dir, "raft.db"), Heartbeat: 20 * time.Millisecond,
		Limits: Limits{KeepEntries: 8, LogBytes: 1 << 20},
	})
	if err != nil {
		return nil, nil, nil, errors.Join(err, log.Close(), st.Close())
	}
	node.Store(n)
	return n, st, func() error { return errors.Join(n.Close(), log.Close(), st.Close()) }, nil
}

// serveUntilKilled is the process that is killed: it sends two shards numbered
// commands and prints each answer, "shard value", once it has it. The machine
// refuses a number that is missing or comes twice, also in what is applied again.
func serveUntilKilled(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	began := time.Now()
	n, state, _, err := openDisk(dir)
	fail(err)
	out := make(chan string, 1024)
	for id := uint32(1); id <= 2; id++ {
		m := &sums{shard: id, values: map[string]int64{}, dirty: map[string]int64{}, published: map[string]int64{}}
		fail(m.load(state))
		maps.Copy(m.published, m.values)
		s, err := n.StartShard(ShardConfig{ID: id, Machine: m})
		fail(err)
		go func() {
			c, stop := testContext()
			defer stop()
			fail(s.Ready(c))
			out <- fmt.Sprintf("ready %d", time.Since(began).Milliseconds())
			next := m.get("seq")
			for {
				var ps []*Proposal
				for range 16 {
					next++
					p, err := s.ProposeAsync(fmt.Appendf(nil, "seq %d %0200d", next, 0), Client)
					fail(err)
					ps = append(ps, p)
				}
				for _, p := range ps {
					v, err := p.Wait(c)
					fail(err)
					out <- fmt.Sprintf("%d %d", id, v)
				}
			}
		}()
	}
	for line := range out {
		fmt.Println(line)
	}
}

// CASES 17: killed at random moments, no acknowledged increment is lost and
// none is applied twice.
func TestCase17_KilledAtRandomMomentsCountsStayExact(t *testing.T) {
	rounds := 6
	if os.Getenv("LIANA_LONG") == "1" {
		rounds = 200
	}
	dir := t.TempDir()
	acked := map[string]int64{}
	slowest := 0
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), killDirEnv+"="+dir)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := func() { cmd.Process.Kill() }
		// While it opens, or once both shards have begun to answer: that takes long on a
		// machine with other work.
		killer, ready := time.AfterFunc(20*time.Second, kill), 0
		if round%3 == 2 {
			killer.Reset(time.Duration(rand.Int64N(int64(120 * time.Millisecond))))
		}
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			shard, value, _ := strings.Cut(lines.Text(), " ")
			v, err := strconv.ParseInt(value, 10, 64)
			switch {
			case err != nil:
				t.Errorf("round %d: %s\n%s", round, lines.Text(), &stderr)
			case shard == "ready":
				slowest = max(slowest, int(v))
				if ready++; ready == 2 {
					killer.Reset(50*time.Millisecond + time.Duration(rand.Int64N(int64(200*time.Millisecond))))
				}
			case v <= acked[shard]:
				t.Fatalf("round %d: shard %s answered %d after %d was acknowledged", round, shard, v, acked[shard])
			default:
				acked[shard] = v
			}
		}
		cmd.Wait()
		killer.Stop()
		if t.Failed() {
			return
		}
	}
	checkDisk(t, dir, acked)
	t.Logf("acknowledged %v in %d kills; slowest start until both shards lead: %d ms", acked, rounds, slowest)
}

// checkDisk opens what the killed process left. A counter may stand above the
// last answer that was printed, never below.
func checkDisk(t *testing.T, dir string, acked map[string]int64) {
	n, state, done, err := openDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := done(); err != nil {
			t.Error(err)
		}
	}()
	for id := uint32(1); id <= 2; id++ {
		m := newSums(t, state, id)
		s, err := n.StartShard(ShardConfig{ID: id, Machine: m})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Ready(ctx(t)); err != nil {
			t.Fatal(err)
		}
		got, want := m.get("seq"), acked[fmt.Sprint(id)]
		if got < want || want == 0 {
			t.Errorf("shard %d: %d in the state, %d acknowledged", id, got, want)
		}
		if v, err := s.Propose(ctx(t), fmt.Appendf(nil, "seq %d", got+1)); err != nil || v.(int64) != got+1 {
			t.Errorf("shard %d: %v, %v after %d", id, v, err, got)
		}
	}
}
