package main

import (
	"context"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisNemesis is one kind of fault of Redis, or of the way to it: strike begins it, waits,
// and ends it.
type redisNemesis struct {
	name   string
	strike func(w *redisWorld, rng *rand.Rand)
}

// redisWorld is the servers that faults strike, and the nodes that use them.
type redisWorld struct {
	f       *fleet
	servers []*redisServer
	cluster *redisCluster // nil: there is one server
}

// redisNemeses are the faults of any Redis.
func redisNemeses() []redisNemesis {
	return []redisNemesis{
		{"kill", killRedis}, {"pause", pauseRedis},
		{"cut off", cutRedis}, {"cut off one node", cutNode}, {"answers late", lateAnswers}, {"answers lost", lostAnswers},
		{"slow", slowRedis}, {"flush", flushRedis}, {"forget scripts", forgetScripts}, {"evict", evict},
	}
}

// clusterNemeses are those of a Redis Cluster with replicas.
func clusterNemeses() []redisNemesis {
	return []redisNemesis{{"fail over", promote}, {"lose a master", loseMaster}, {"reshard", reshard}}
}

func (w *redisWorld) one(rng *rand.Rand) *redisServer { return w.servers[rng.Intn(len(w.servers))] }

// wires sets the ways between some servers and some nodes, there and back.
func (w *redisWorld) wires(servers []*redisServer, nodes []*place, there, back wire) {
	for _, s := range servers {
		for _, p := range nodes {
			w.f.board.set(p.name, s.name(), there)
			w.f.board.set(s.name(), p.name, back)
		}
	}
}

// name is the server's on the switchboard.
func (s *redisServer) name() string { return s.addr }

// killRedis ends a server and starts it again, empty.
func killRedis(w *redisWorld, rng *rand.Rand) {
	s := w.one(rng)
	s.kill()
	some(rng, 50, 600)
	s.start()
}

func pauseRedis(w *redisWorld, rng *rand.Rand) {
	s := w.one(rng)
	s.pause()
	some(rng, 50, 1000)
	s.resume()
}

// cutRedis cuts a server off from all nodes; what they sent arrives after it.
func cutRedis(w *redisWorld, rng *rand.Rand) {
	w.wires([]*redisServer{w.one(rng)}, w.f.places, wire{cut: true}, wire{cut: true})
	some(rng, 100, 1200)
	w.f.board.heal()
}

// cutNode cuts one node off from all servers: a gateway does not see what the feeder
// brings, or the feeder brings nothing and gateways go on reading.
func cutNode(w *redisWorld, rng *rand.Rand) {
	w.wires(w.servers, []*place{w.f.places[rng.Intn(len(w.f.places))]}, wire{cut: true}, wire{cut: true})
	some(rng, 100, 1500)
	w.f.board.heal()
}

// lateAnswers has commands arrive and be executed, and their answers come when nobody waits
// for them any more.
func lateAnswers(w *redisWorld, rng *rand.Rand) {
	w.wires(w.servers, w.f.places, wire{}, wire{cut: true})
	some(rng, 100, 1000)
	w.f.board.heal()
}

// lostAnswers has commands be executed, and their answers lost with the connection, again and again.
func lostAnswers(w *redisWorld, rng *rand.Rand) {
	for range 5 + rng.Intn(15) {
		w.wires(w.servers, w.f.places, wire{}, wire{lost: true})
		some(rng, 1, 30)
		w.f.board.heal()
		some(rng, 20, 150)
	}
}

// slowRedis has answers take about as long as is waited for them.
func slowRedis(w *redisWorld, rng *rand.Rand) {
	for range 5 {
		w.wires(w.servers, w.f.places, wire{}, wire{delay: time.Duration(rng.Intn(50)) * time.Millisecond})
		some(rng, 50, 400)
	}
	w.f.board.heal()
}

// flushRedis empties a server under the eyes of all.
func flushRedis(w *redisWorld, rng *rand.Rand) {
	for range 1 + rng.Intn(4) {
		w.one(rng).tell("flushall")
		some(rng, 10, 300)
	}
}

func forgetScripts(w *redisWorld, rng *rand.Rand) {
	for _, s := range w.servers {
		s.tell("script", "flush")
		some(rng, 1, 50)
	}
}

// evict has a server evict what it likes, positions of slots too.
func evict(w *redisWorld, rng *rand.Rand) {
	s := w.one(rng)
	s.tell("config", "set", "maxmemory-policy", "allkeys-random")
	for range 10 { // it fills again in between
		if used := s.memory(); used > 0 {
			s.tell("config", "set", "maxmemory", fmt.Sprint(used-used/50))
		}
		some(rng, 20, 150)
		s.tell("config", "set", "maxmemory", "0")
		some(rng, 20, 100)
	}
}

// tell has a server do something. That it cannot is no fault.
func (s *redisServer) tell(args ...string) {
	c := s.client()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	all := make([]any, len(args))
	for i := range args {
		all[i] = args[i]
	}
	_ = c.Do(ctx, all...).Err()
}

// memory is how many bytes a server uses; 0 where it does not say so.
func (s *redisServer) memory() (n int) {
	c := s.client()
	defer c.Close()
	for line := range strings.Lines(c.Info(context.Background(), "memory").Val()) {
		_, _ = fmt.Sscanf(line, "used_memory:%d", &n)
	}
	return n
}

// masters and replicas are the servers by what they say that they are.
func (w *redisWorld) roles() (masters, replicas []*redisServer) {
	for _, s := range w.servers {
		c := s.client()
		switch role, err := c.Do(context.Background(), "role").Slice(); {
		case err != nil || len(role) == 0:
		case role[0] == "master":
			masters = append(masters, s)
		default:
			replicas = append(replicas, s)
		}
		c.Close()
	}
	return masters, replicas
}

// promote has a replica take over from its master, which goes on for a while not to know,
// or agrees.
func promote(w *redisWorld, rng *rand.Rand) {
	_, replicas := w.roles()
	if len(replicas) == 0 {
		return
	}
	s := replicas[rng.Intn(len(replicas))]
	how := [][]string{{"cluster", "failover"}, {"cluster", "failover", "force"}, {"cluster", "failover", "takeover"}}
	s.tell(how[rng.Intn(len(how))]...)
	some(rng, 500, 1500)
}

// loseMaster kills or stops a master for so long that its replica takes over, without what
// it was not sent. It comes back as its replica, or, where it was stopped, as the master
// that it takes itself for.
func loseMaster(w *redisWorld, rng *rand.Rand) {
	masters, _ := w.roles()
	if len(masters) == 0 {
		return
	}
	s := masters[rng.Intn(len(masters))]
	if rng.Intn(2) == 0 {
		s.pause()
		some(rng, 2500, 4000)
		s.resume()
		return
	}
	s.kill()
	some(rng, 2500, 4000)
	s.start()
}

// reshard moves hash slots from one master to another.
func reshard(w *redisWorld, rng *rand.Rand) {
	w.cluster.agree()
	masters, _ := w.roles()
	order := rng.Perm(len(masters))
	from, to := masters[order[0]].id(), masters[order[1]].id()
	w.cluster.cli("reshard", masters[0].addr, "--cluster-from", from, "--cluster-to", to, "--cluster-slots", fmt.Sprint(100+rng.Intn(300)))
}

// id is the server's in its cluster.
func (s *redisServer) id() string {
	s.t.Helper()
	c := s.client()
	defer c.Close()
	id, err := c.Do(context.Background(), "cluster", "myid").Text()
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// everyMaster calls do with each server that holds data.
func (w *redisWorld) everyMaster(do func(*redis.Client)) {
	masters, _ := w.roles()
	for _, s := range masters {
		c := s.client()
		do(c)
		c.Close()
	}
}
