package target

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// Cluster is several lianad on this machine. Sessions spread over its nodes.
type Cluster struct {
	name        string
	dir         string
	opts        LianaOptions
	replication int
	nodes       []*lianaServer
	nextOne     atomic.Uint64
}

// formTime bounds the time until all shards of a cluster have their replicas.
const formTime = 3 * time.Minute

// StartCluster starts nodes with empty stores and waits until each shard has its voters.
func StartCluster(ctx context.Context, name, dir string, nodes, replication int, o LianaOptions) (*Cluster, error) {
	c := &Cluster{name: name, dir: dir, opts: o, replication: replication}
	for range nodes {
		if err := c.AddNode(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), c.Stop())
		}
	}
	if err := c.WaitAtRest(ctx, formTime); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), c.Stop())
	}
	return c, nil
}

// AddNode starts one more node; the first founds the cluster.
func (c *Cluster) AddNode(ctx context.Context) error {
	n := len(c.nodes)
	node := &lianaServer{name: fmt.Sprintf("%s-%d", c.name, n+1), dir: filepath.Join(c.dir, strconv.Itoa(n+1)), opts: c.opts}
	if err := os.Mkdir(node.dir, 0o755); err != nil {
		return err
	}
	if n == 0 {
		node.replication = c.replication
	} else {
		node.join = c.nodes[0].peer
	}
	if err := node.Restart(ctx); err != nil {
		return err
	}
	c.nodes = append(c.nodes, node)
	return nil
}

// Overview is what the cluster says of itself, asked of the node numbered from 0.
func (c *Cluster) Overview(ctx context.Context, node int) (*lianav1.GetClusterResponse, error) {
	var out *lianav1.GetClusterResponse
	err := c.operate(ctx, node, func(ctx context.Context, cluster lianav1.ClusterClient) (err error) {
		out, err = cluster.GetCluster(ctx, &lianav1.GetClusterRequest{})
		return err
	})
	return out, err
}

func (c *Cluster) operate(ctx context.Context, node int, do func(context.Context, lianav1.ClusterClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := grpc.NewClient(c.nodes[node].addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return do(ctx, lianav1.NewClusterClient(conn))
}

// WaitAtRest waits until every shard has a leader and its voters, all of them
// well, and nothing moves.
func (c *Cluster) WaitAtRest(ctx context.Context, within time.Duration) error {
	for end := time.Now().Add(within); ; {
		overview, err := c.Overview(ctx, 0)
		if err == nil && c.atRest(overview) {
			return nil
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("the cluster does not come to rest within %v: %v", within, overview), err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c *Cluster) atRest(o *lianav1.GetClusterResponse) bool {
	for _, n := range o.GetNodes() {
		if n.GetState() == "draining" && n.GetReplicas() > 0 {
			return false
		}
	}
	shards := 0
	for _, s := range o.GetShards() {
		if s.GetLeader() == "" || s.GetMovingFrom()+s.GetMovingTo() != "" {
			return false
		}
		for _, r := range s.GetReplicas() {
			if !r.GetVoter() || r.GetFault() != "" {
				return false
			}
		}
		if !s.GetCatalog() {
			shards++
			if len(s.GetReplicas()) != c.replication {
				return false
			}
		}
	}
	return shards > 0
}

// ID is the id of the node numbered from 0.
func (c *Cluster) ID(ctx context.Context, node int) (string, error) {
	o, err := c.Overview(ctx, 0)
	if err != nil {
		return "", err
	}
	for _, n := range o.GetNodes() {
		if n.GetPeerAddr() == c.nodes[node].peer {
			return n.GetId(), nil
		}
	}
	return "", fmt.Errorf("no node of the cluster has the peer address %s", c.nodes[node].peer)
}

// Drain begins to move all replicas off a node, Activate gives it replicas again.
func (c *Cluster) Drain(ctx context.Context, id string) error {
	return c.operate(ctx, 0, func(ctx context.Context, cluster lianav1.ClusterClient) error {
		_, err := cluster.DrainNode(ctx, &lianav1.DrainNodeRequest{Node: id})
		return err
	})
}

// Activate ends a drain and evens out the replicas.
func (c *Cluster) Activate(ctx context.Context, id string) error {
	return c.operate(ctx, 0, func(ctx context.Context, cluster lianav1.ClusterClient) error {
		_, err := cluster.ActivateNode(ctx, &lianav1.ActivateNodeRequest{Node: id})
		return err
	})
}

// LeaderOfMost is the number of the node that leads most shards.
func (c *Cluster) LeaderOfMost(ctx context.Context) (int, error) {
	best, leads := 0, -1
	o, err := c.Overview(ctx, 0)
	if err != nil {
		return 0, err
	}
	for _, n := range o.GetNodes() {
		for i, own := range c.nodes {
			if n.GetPeerAddr() == own.peer && int(n.GetLeaders()) > leads {
				best, leads = i, int(n.GetLeaders())
			}
		}
	}
	return best, nil
}

// CrashNode ends a node as kill -9 does; RestartNode starts it again on its data.
func (c *Cluster) CrashNode(node int) error { return c.nodes[node].Crash() }

// RestartNode starts a node again on its data, under the address that the others know.
func (c *Cluster) RestartNode(ctx context.Context, node int) error { return c.nodes[node].Restart(ctx) }

// SessionAt opens a session with one node, numbered from 0.
func (c *Cluster) SessionAt(ctx context.Context, node int) (Session, error) {
	return c.nodes[node].Session(ctx)
}

func (c *Cluster) Name() string { return c.name }

func (c *Cluster) Facts() []string {
	return append([]string{fmt.Sprintf("%d nodes, each shard with %d voters", len(c.nodes), c.replication)}, c.nodes[0].Facts()[1:]...)
}

func (c *Cluster) Session(ctx context.Context) (Session, error) {
	return c.SessionAt(ctx, int(c.nextOne.Add(1)%uint64(len(c.nodes))))
}

func (c *Cluster) PIDs() []int {
	var all []int
	for _, n := range c.nodes {
		all = append(all, n.PIDs()...)
	}
	return all
}

func (c *Cluster) Crash() error {
	return c.each(func(n *lianaServer) error { return n.Crash() })
}

func (c *Cluster) Restart(ctx context.Context) error {
	return c.each(func(n *lianaServer) error { return n.Restart(ctx) })
}

// DiskUsage is measured of one node only: see the target liana.
func (c *Cluster) DiskUsage(context.Context) ([]DiskPart, error) {
	return nil, errors.New("the disk of a cluster is not measured")
}

func (c *Cluster) Stop() error {
	return c.each(func(n *lianaServer) error { return n.Stop() })
}

func (c *Cluster) each(do func(*lianaServer) error) error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, do(n))
	}
	return errors.Join(errs...)
}
