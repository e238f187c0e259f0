package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

func (c *cli) clusterCommand() *cobra.Command {
	return group("cluster", "Show and change the nodes of the cluster",
		c.clusterStatusCommand(), c.clusterAddCommand(), c.clusterDrainCommand(), c.clusterActivateCommand(),
		c.clusterRemoveCommand(), c.clusterRebalanceCommand(), c.clusterSplitCommand(), c.clusterReplicationCommand())
}

func (c *cli) cluster() (lianav1.ClusterClient, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	return lianav1.NewClusterClient(conn), nil
}

func (c *cli) overview(ctx context.Context) (*lianav1.GetClusterResponse, error) {
	client, err := c.cluster()
	if err != nil {
		return nil, err
	}
	return call(ctx, c, client.GetCluster, new(lianav1.GetClusterRequest))
}

func (c *cli) clusterStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show the nodes, and where the shards and their leaders lie",
		Example: `  liana cluster status`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := c.overview(cmd.Context())
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) { clusterTable(w, answer) })
		},
	}
}

func clusterTable(w io.Writer, a *lianav1.GetClusterResponse) {
	fmt.Fprintf(w, "cluster\t%s\nreplication\t%d\nmap\tversion %d, level %d\n\n", a.GetClusterId(), a.GetReplication(), a.GetMapVersion(), a.GetLevel())
	fmt.Fprintln(w, "NODE\tPEER\tGRPC\tROLES\tZONE\tSTATE\tREPLICAS\tLEADERS")
	for _, n := range a.GetNodes() {
		state := n.GetState()
		if !n.GetReachable() && state != "removed" {
			state += ", UNREACHABLE"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n", n.GetId(), n.GetPeerAddr(), n.GetGrpcAddr(),
			strings.Join(n.GetRoles(), "+"), dash(n.GetZone()), state, n.GetReplicas(), n.GetLeaders())
	}
	fmt.Fprintln(w, "\nSHARD\tSLOTS\tLEADER\tREPLICAS")
	for _, s := range a.GetShards() {
		name, slots := fmt.Sprint(s.GetId()), fmt.Sprintf("%d-%d", s.GetFirstSlot(), s.GetLastSlot())
		if s.GetCatalog() {
			name, slots = "catalog", "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, slots, shortNode(s.GetLeader(), "NONE"), strings.Join(replicaWords(s), ", "))
	}
	if len(a.GetRemarks()) > 0 {
		fmt.Fprintln(w)
	}
	for _, r := range a.GetRemarks() {
		fmt.Fprintln(w, r)
	}
}

func replicaWords(s *lianav1.ClusterShard) []string {
	var out []string
	for _, r := range s.GetReplicas() {
		text := shortNode(r.GetNode(), "?")
		switch {
		case r.GetFault() != "":
			text += " (" + r.GetFault() + ")"
		case !r.GetVoter() && s.GetLeader() != "":
			text += fmt.Sprintf(" (catching up, %d entries behind)", r.GetLag())
		}
		out = append(out, text)
	}
	switch from, to := s.GetMovingFrom(), s.GetMovingTo(); {
	case to != "" && from != "":
		out = append(out, fmt.Sprintf("moving from %s to %s", shortNode(from, ""), shortNode(to, "")))
	case to != "":
		out = append(out, "adding "+shortNode(to, ""))
	case from != "":
		out = append(out, "removing "+shortNode(from, ""))
	}
	if s.GetSplittingAt() > 0 {
		out = append(out, fmt.Sprintf("splitting: slots from %d on go to shard %d", s.GetSplittingAt(), s.GetSplittingInto()))
	}
	return out
}

// shortNode is the beginning of a node id, which is enough to tell nodes apart by eye.
func shortNode(id, absent string) string {
	if id == "" {
		return absent
	}
	short, _, _ := strings.Cut(id, "-")
	return short
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (c *cli) clusterAddCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "add-node",
		Short: "Tell how a new node joins this cluster",
		Long: `Print the command that makes a new node join this cluster. A node joins by
starting: it takes a place in the map, and the cluster moves replicas to it.`,
		Example: `  liana cluster add-node`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := c.overview(cmd.Context())
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) {
				for _, n := range answer.GetNodes() {
					if n.GetReachable() && n.GetPeerAddr() != "" {
						fmt.Fprintf(w, "lianad start --data-dir NEW_DIRECTORY --join %s --grpc-addr ADDRESS --http-addr ADDRESS --peer-addr ADDRESS\n", n.GetPeerAddr())
						return
					}
				}
				fmt.Fprintln(w, "no node of this cluster can be reached by others: start them with --peer-addr")
			})
		},
	}
}

// nodeCommand is a command that changes one node.
func (c *cli) nodeCommand(use, short, long string, change func(context.Context, lianav1.ClusterClient, string) error, then func(context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:     use + " NODE",
		Short:   short,
		Long:    long,
		Example: fmt.Sprintf("  liana cluster %s 1f0c3a52   # the beginning of a node id is enough", use),
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			node, err := c.findNode(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			client, err := c.cluster()
			if err != nil {
				return err
			}
			if err := change(cmd.Context(), client, node); err != nil {
				return err
			}
			if then != nil {
				return then(cmd.Context(), node)
			}
			return c.out.value(map[string]string{"node": node}, func(w io.Writer) { fmt.Fprintln(w, "ok") })
		},
	}
}

// findNode returns the id of the one node whose id begins with text.
func (c *cli) findNode(ctx context.Context, text string) (string, error) {
	answer, err := c.overview(ctx)
	if err != nil {
		return "", err
	}
	found := ""
	for _, n := range answer.GetNodes() {
		switch {
		case n.GetId() == text:
			return text, nil
		case strings.HasPrefix(n.GetId(), text) && found != "":
			return "", usagef("NODE: more than one node id begins with %q", text)
		case strings.HasPrefix(n.GetId(), text):
			found = n.GetId()
		}
	}
	if found == "" {
		return "", usagef("NODE: no node id begins with %q; see liana cluster status", text)
	}
	return found, nil
}

func (c *cli) clusterDrainCommand() *cobra.Command {
	return c.nodeCommand("drain", "Move all replicas off a node, and wait until it is empty",
		`Move all replicas off a node, and wait until it is empty. Breaking off the wait
does not end the drain; calling it again waits on. "liana cluster activate" ends it.`,
		func(ctx context.Context, client lianav1.ClusterClient, node string) error {
			_, err := call(ctx, c, client.DrainNode, &lianav1.DrainNodeRequest{Node: node})
			return err
		}, c.awaitEmpty)
}

// drainLook is the pause between looks at a node that is being drained.
const drainLook = 500 * time.Millisecond

func (c *cli) awaitEmpty(ctx context.Context, node string) error {
	bar := c.newProgress("replicas moved")
	defer bar.clear()
	first := -1
	for {
		answer, err := c.overview(ctx)
		if err != nil {
			return err
		}
		left := replicasOn(answer, node)
		if first < 0 {
			first = left
		}
		if left == 0 {
			bar.clear()
			return c.out.message(answer, func(w io.Writer) { fmt.Fprintln(w, "the node is empty") })
		}
		bar.update(uint64(first-min(left, first)), 1-float64(left)/float64(max(1, first)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(drainLook):
		}
	}
}

// awaitRemoved waits until what a lost node held is made anew elsewhere.
func (c *cli) awaitRemoved(ctx context.Context, node string) error {
	bar := c.newProgress("replicas made anew")
	defer bar.clear()
	first := -1
	for {
		answer, err := c.overview(ctx)
		if err != nil {
			return err
		}
		state, left := "", replicasOn(answer, node)
		for _, n := range answer.GetNodes() {
			if n.GetId() == node {
				state = n.GetState()
			}
		}
		if first < 0 {
			first = left
		}
		switch state {
		case "removed":
			bar.clear()
			return c.out.message(answer, func(w io.Writer) { fmt.Fprintln(w, "the node is removed") })
		case "leaving":
		default:
			return fmt.Errorf("node %s is %s again: somebody activated it", node, state)
		}
		bar.update(uint64(first-min(left, first)), 1-float64(left)/float64(max(1, first)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(drainLook):
		}
	}
}

func replicasOn(a *lianav1.GetClusterResponse, node string) int {
	n := 0
	for _, s := range a.GetShards() {
		for _, r := range s.GetReplicas() {
			if r.GetNode() == node {
				n++
			}
		}
	}
	return n
}

func (c *cli) clusterActivateCommand() *cobra.Command {
	return c.nodeCommand("activate", "End the drain of a node: it takes replicas again", "",
		func(ctx context.Context, client lianav1.ClusterClient, node string) error {
			_, err := call(ctx, c, client.ActivateNode, &lianav1.ActivateNodeRequest{Node: node})
			return err
		}, nil)
}

func (c *cli) clusterRemoveCommand() *cobra.Command {
	return c.nodeCommand("remove-node", "Remove a node that is empty, or lost, for good",
		`Remove a node from the cluster for good: its id never comes back. A node that
answers is drained first. One that is lost needs no more than this: what it held is
made anew on other nodes, and the command waits for that. It is refused, with what
to do, where a shard has no majority without the node, or no room.`,
		func(ctx context.Context, client lianav1.ClusterClient, node string) error {
			_, err := call(ctx, c, client.RemoveNode, &lianav1.RemoveNodeRequest{Node: node})
			return err
		}, c.awaitRemoved)
}

func (c *cli) clusterReplicationCommand() *cobra.Command {
	var replicas uint32
	cmd := &cobra.Command{
		Use:     "replication --replicas N",
		Short:   "Set how many replicas each shard has",
		Example: `  liana cluster replication --replicas 3`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.cluster()
			if err != nil {
				return err
			}
			answer, err := call(cmd.Context(), c, client.SetReplication, &lianav1.SetReplicationRequest{Replicas: replicas})
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) { fmt.Fprintln(w, "ok; liana cluster rebalance shows the copying") })
		},
	}
	cmd.Flags().Uint32Var(&replicas, "replicas", 0, "1, 3, 5 or 7")
	_ = cmd.MarkFlagRequired("replicas")
	return cmd
}

func (c *cli) clusterRebalanceCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "rebalance",
		Short: "Wait until replicas are spread evenly over the nodes",
		Long: `Wait until replicas are spread evenly over the nodes, and show the moves. The
cluster makes them by itself; breaking off the wait ends none of them.`,
		Example: `  liana cluster rebalance
  liana cluster rebalance --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.cluster()
			if err != nil {
				return err
			}
			stream, err := client.Rebalance(cmd.Context(), &lianav1.RebalanceRequest{DryRun: dryRun})
			if err != nil {
				return err
			}
			return awaitDone(c, stream, "moves made", func(a *lianav1.RebalanceResponse) (uint64, float64) {
				done := uint64(a.GetMovesDone())
				return done, shareOf(done, done+uint64(a.GetMovesLeft()))
			}, rebalanceTable)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only tell what would be moved")
	return cmd
}

func (c *cli) clusterSplitCommand() *cobra.Command {
	var at uint32
	cmd := &cobra.Command{
		Use:   "split SHARD",
		Short: "Split a shard in two",
		Long: `Split a shard in two: the slots from one on go to a new shard, whose replicas lie
where those of the old one do. No data is copied, and calls go on. Breaking off the
wait does not end the split; made again, the command waits for it.`,
		Example: `  liana cluster split 2
  liana cluster split 2 --at 2560`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseUint(args[0], 10, 32)
			if err != nil {
				return usagef("shard %q: want a number as liana cluster status shows it", args[0])
			}
			client, err := c.cluster()
			if err != nil {
				return err
			}
			stream, err := client.SplitShard(cmd.Context(), &lianav1.SplitShardRequest{Shard: uint32(id), At: at})
			if err != nil {
				return err
			}
			looks := uint64(0)
			return awaitDone(c, stream, "looks at the split", func(*lianav1.SplitShardResponse) (uint64, float64) {
				looks++
				return looks, -1
			}, func(w io.Writer, a *lianav1.SplitShardResponse) { fmt.Fprintln(w, a.GetPhase()) })
		},
	}
	cmd.Flags().Uint32Var(&at, "at", 0, "first slot of the new shard, 1 to 4095 (0: where the data has its middle)")
	return cmd
}

// told is an answer of a call that tells how far an operation is until it is done.
type told interface {
	proto.Message
	GetDone() bool
}

// awaitDone shows how far an operation is, as units and a share of the whole, and then
// its last answer.
func awaitDone[T told](c *cli, stream interface{ Recv() (T, error) }, unit string, far func(T) (uint64, float64), table func(io.Writer, T)) error {
	bar := c.newProgress(unit)
	defer bar.clear()
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the server ended the call before it was done")
		}
		if err != nil {
			return err
		}
		if answer.GetDone() {
			bar.clear()
			return c.out.message(answer, func(w io.Writer) { table(w, answer) })
		}
		bar.update(far(answer))
	}
}

func rebalanceTable(w io.Writer, a *lianav1.RebalanceResponse) {
	for _, m := range a.GetMoves() {
		fmt.Fprintln(w, m)
	}
	fmt.Fprintf(w, "moves made: %d, left: %d\n", a.GetMovesDone(), a.GetMovesLeft())
}
