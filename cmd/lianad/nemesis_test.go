package main

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"syscall"
	"time"

	pb "github.com/lianadb/liana/proto/liana/v1"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
	"github.com/lianadb/liana/server/peer"
)

// nemesis is one kind of fault: strike begins it, waits, and ends it.
type nemesis struct {
	name   string
	strike func(f *fleet, rng *rand.Rand)
}

// nemeses are all kinds of faults. Those that need more nodes than replicas do nothing
// in smaller clusters.
func nemeses() []nemesis {
	return []nemesis{
		{"kill", kill}, {"pause", pause},
		{"isolate", isolate}, {"one-way", oneWay}, {"bridge", bridge},
		{"slow links", slowLinks}, {"resets", resets},
		{"transfer", transfer}, {"move", move}, {"split", splitOne},
		{"skew", skew}, {"stall", stall},
	}
}

// some waits between the two numbers of milliseconds.
func some(rng *rand.Rand, least, most int) {
	time.Sleep(time.Duration(least+rng.Intn(most-least)) * time.Millisecond)
}

// kill ends a node and starts it again.
func kill(f *fleet, rng *rand.Rand) {
	p := f.places[rng.Intn(len(f.places))]
	d := p.down()
	d.signal(syscall.SIGKILL)
	d.wait()
	some(rng, 500, 2000)
	p.restart()
}

// pause has a node stand still.
func pause(f *fleet, rng *rand.Rand) {
	f.pauseFor(rng.Intn(len(f.places)), rng, 300, 2800)
}

// pauseFor has a node stand still for some milliseconds.
func (f *fleet) pauseFor(i int, rng *rand.Rand, least, most int) {
	d := f.node(i)
	d.signal(syscall.SIGSTOP)
	some(rng, least, most)
	d.signal(syscall.SIGCONT)
}

// isolate cuts a node off.
func isolate(f *fleet, rng *rand.Rand) {
	f.isolate(rng.Intn(len(f.places)))
	some(rng, 500, 3500)
	f.board.heal()
}

// oneWay has a node hear the others and not be heard, or the reverse, by some or all.
func oneWay(f *fleet, rng *rand.Rand) {
	i, hears := rng.Intn(len(f.places)), rng.Intn(2) == 0
	for j := range f.places {
		switch {
		case i == j || rng.Intn(4) == 0:
		case hears:
			f.cutOneWay(i, j)
		default:
			f.cutOneWay(j, i)
		}
	}
	some(rng, 500, 3500)
	f.board.heal()
}

// bridge cuts two nodes off from each other; the others see both.
func bridge(f *fleet, rng *rand.Rand) {
	order := rng.Perm(len(f.places))
	f.cut(order[0], order[1])
	some(rng, 500, 3500)
	f.board.heal()
}

// slowLinks delays what nodes say to each other, and lets little of it through.
func slowLinks(f *fleet, rng *rand.Rand) {
	for i := range f.places {
		for j := range f.places {
			if i != j && rng.Intn(3) > 0 {
				f.board.set(f.places[i].name, f.places[j].name, wire{
					delay: time.Duration(rng.Intn(200)) * time.Millisecond, rate: 20_000 + rng.Intn(1_000_000),
				})
			}
		}
	}
	some(rng, 1000, 4000)
	f.board.heal()
}

// resets breaks connections again and again.
func resets(f *fleet, rng *rand.Rand) {
	for range 3 + rng.Intn(10) {
		order := rng.Perm(len(f.places))
		f.board.reset(f.places[order[0]].name, f.places[order[1]].name)
		some(rng, 10, 300)
	}
}

// transfer hands the leadership of shards to other replicas.
func transfer(f *fleet, rng *rand.Rand) {
	for _, s := range f.look().GetShards() {
		if s.GetLeader() == "" || len(s.GetReplicas()) == 0 || rng.Intn(2) == 0 {
			continue
		}
		// That it is refused, or comes too late, is no fault.
		_ = f.transfer(s, s.GetReplicas()[rng.Intn(len(s.GetReplicas()))].GetReplica())
	}
	some(rng, 300, 1000)
}

// transfer asks the leader of a shard to hand over to a replica.
func (f *fleet) transfer(s *pb.ClusterShard, replica string) error {
	addr := ""
	for _, n := range f.look().GetNodes() {
		if n.GetId() == s.GetLeader() {
			addr = n.GetPeerAddr()
		}
	}
	c, err := peer.DialClient(addr, nil, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err = c.ChangeMembers(ctx, &peerv1.ChangeMembersRequest{
		Shard: s.GetId(), Change: peerv1.ChangeMembersRequest_CHANGE_TRANSFER_LEADERSHIP, Replica: replica,
	})
	return err
}

// move has the replicas of a node leave it, and come back.
func move(f *fleet, rng *rand.Rand) {
	if len(f.places) < 4 {
		return
	}
	look := f.look()
	if look == nil {
		return
	}
	nodes := slices.DeleteFunc(look.GetNodes(), func(n *pb.ClusterNode) bool { return n.GetState() != "active" })
	if len(nodes) < 4 {
		return
	}
	node := nodes[rng.Intn(len(nodes))].GetId()
	f.ask(func(ctx context.Context, c pb.ClusterClient) error {
		_, err := c.DrainNode(ctx, &pb.DrainNodeRequest{Node: node})
		return err
	})
	some(rng, 2000, 6000)
	f.activate()
}

// mostShards is how many shards faults make, the catalog included.
const mostShards = 12

// splitOne splits a shard, and does not wait for the end: what comes next strikes in the
// middle of it, where not one fault comes with it already.
func splitOne(f *fleet, rng *rand.Rand) {
	look := f.look()
	if look == nil || len(look.GetShards()) >= mostShards {
		return
	}
	s := look.GetShards()[rng.Intn(len(look.GetShards()))]
	if s.GetCatalog() || s.GetSplittingAt() > 0 || s.GetFirstSlot() == s.GetLastSlot() {
		return
	}
	at := s.GetFirstSlot() + 1 + uint32(rng.Intn(int(s.GetLastSlot()-s.GetFirstSlot())))
	struck := make(chan struct{})
	go func() { // one of those that the split has to go on through
		defer close(struck)
		some(rand.New(rand.NewSource(int64(at))), 1, 300)
		switch voters := s.GetReplicas(); {
		case at%3 == 0:
			f.isolate(int(at) % len(f.places))
		case at%3 == 1 && s.GetLeader() != "" && len(voters) > 0:
			_ = f.transfer(s, voters[int(at)%len(voters)].GetReplica())
		}
	}()
	f.ask(func(ctx context.Context, c pb.ClusterClient) error {
		stream, err := c.SplitShard(ctx, &pb.SplitShardRequest{Shard: s.GetId(), At: at})
		for err == nil {
			var answer *pb.SplitShardResponse
			if answer, err = stream.Recv(); answer.GetDone() {
				return nil
			}
		}
		return err
	})
	<-struck
	f.board.heal()
}

// activate takes back all drains, as long as it may be refused for a map that changed.
func (f *fleet) activate() {
	for range 20 {
		drained := false
		for _, n := range f.look().GetNodes() {
			if n.GetState() == "active" {
				continue
			}
			drained = true
			f.ask(func(ctx context.Context, c pb.ClusterClient) error {
				_, err := c.ActivateNode(ctx, &pb.ActivateNodeRequest{Node: n.GetId()})
				return err
			})
		}
		if !drained {
			return
		}
	}
}

// ask asks one node after the other until one does it.
func (f *fleet) ask(do func(context.Context, pb.ClusterClient) error) {
	for i := range f.places {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		err := do(ctx, f.node(i).cluster)
		cancel()
		if err == nil {
			return
		}
	}
}

// skew sets clocks wrong by up to an hour, either way, and later right again.
func skew(f *fleet, rng *rand.Rand) {
	for i := range f.places {
		if rng.Intn(2) == 0 {
			f.skew(i, time.Duration(rng.Int63n(int64(2*time.Hour)))-time.Hour)
		}
	}
	if rng.Intn(2) == 0 { // terms that open under it
		transfer(f, rng)
	}
	some(rng, 500, 3000)
	for i := range f.places {
		f.skew(i, 0)
	}
}

// stall has the disk of a node stand still.
func stall(f *fleet, rng *rand.Rand) {
	i := rng.Intn(len(f.places))
	f.stall(i, true)
	some(rng, 300, 4000)
	f.stall(i, false)
}

// torment strikes with one fault after the other, some of them two at a time.
func (f *fleet) torment(rng *rand.Rand, until time.Time) {
	all, struck := nemeses(), map[string]int{}
	order := rng.Perm(len(all)) // all of them, where there is time
	for n := 0; time.Now().Before(until); n++ {
		one := all[order[n%len(order)]]
		if n >= len(order) {
			one = all[rng.Intn(len(all))]
		}
		struck[one.name]++
		if rng.Intn(4) == 0 {
			second := rand.New(rand.NewSource(rng.Int63()))
			skewed := make(chan struct{})
			go func() {
				skew(f, second)
				close(skewed)
			}()
			one.strike(f, rng)
			<-skewed
		} else {
			one.strike(f, rng)
		}
		some(rng, 300, 1500)
	}
	f.activate()
	var told []string
	for _, one := range all {
		told = append(told, fmt.Sprintf("%s %d", one.name, struck[one.name]))
	}
	f.t.Logf("faults: %s", strings.Join(told, ", "))
}
