package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/kv/datadir"
	"github.com/lianadb/liana/kv/shard"
	"github.com/lianadb/liana/server/cluster"
	"github.com/lianadb/liana/server/peer"
)

func newRecover(h host) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Go on without nodes whose loss took shards their majority",
		Long: `Go on without nodes whose loss took shards their majority. It is for data that is
lost for good, and works on the data directories of the nodes that are left, while
they are stopped. docs/operations.md tells the steps.

Of each shard without a majority the newest copy that is left becomes the only one.
What only lost nodes had acknowledged is lost, and lost nodes must never come back.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRecoverReport(h), newRecoverApply(h))
	return cmd
}

func newRecoverReport(h host) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "report",
		Short:   "Print what this node has, as JSON",
		Example: "  lianad recover report --data-dir /var/lib/liana > node1.json",
		Args:    noArguments,
	}
	flags := newFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := flags.load()
		if err != nil {
			return usageError{err}
		}
		n, err := openStopped(h, cfg, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		s, err := n.survivor()
		if err := errors.Join(err, n.close()); err != nil {
			return err
		}
		e := json.NewEncoder(cmd.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	return cmd
}

func newRecoverApply(h host) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "apply [REPORT...]",
		Short: "Tell what a recovery does, and with --yes do it on this node",
		Long: `Tell what a recovery does, and with --yes do this node's part of it. The arguments are
the reports of all nodes that are left, the same on each of them; where only this one
is left, none are needed. Doing it again changes nothing.`,
		Example: "  lianad recover apply --data-dir /var/lib/liana node1.json node4.json\n  lianad recover apply --data-dir /var/lib/liana --yes node1.json node4.json",
	}
	flags := newFlags(cmd.Flags())
	cmd.Flags().BoolVar(&yes, "yes", false, "do it: what is lost is lost for good")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		cfg, err := flags.load()
		if err != nil {
			return usageError{err}
		}
		n, err := openStopped(h, cfg, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, n.close()) }()
		survivors, err := n.survivors(args)
		if err != nil {
			return err
		}
		plan, err := cluster.PlanRecovery(survivors)
		if err != nil {
			return err
		}
		tell(cmd.OutOrStdout(), plan)
		if err := n.seeThatLostAreDown(plan); err != nil || !yes {
			return err
		}
		return n.recover(plan, cmd.OutOrStdout())
	}
	return cmd
}

// stopped is the data of a node that does not run.
type stopped struct {
	*node
	last *catalog.Map
}

// openStopped opens what a recovery needs. The lock of the directory keeps out a node
// that runs.
func openStopped(h host, cfg config, stderr io.Writer) (*stopped, error) {
	log := slog.New(slog.DiscardHandler)
	if _, known, err := datadir.Peek(cfg.DataDir); err != nil || !known {
		return nil, errors.Join(err, fmt.Errorf("%s: there is no data directory", cfg.DataDir))
	}
	secure, err := cfg.Cluster.TLS.read()
	if err != nil {
		return nil, err
	}
	p := &ports{tls: secure}
	n := &node{
		host: h, cfg: cfg, log: log, cluster: newMembership(h, cfg, p, log), expelled: make(chan error, 1),
		fatal: func(err error) {
			fmt.Fprintf(stderr, "lianad: an engine cannot go on: %v\n", err)
			os.Exit(exitFailed)
		},
	}
	s := &stopped{node: n}
	for _, open := range []func() error{s.openDir, n.openStores, s.openReplicas} {
		if err := open(); err != nil {
			return nil, errors.Join(err, n.close())
		}
	}
	return s, nil
}

func (s *stopped) openDir() (err error) {
	if s.dir, err = datadir.Open(s.cfg.DataDir, datadir.Options{}); err != nil {
		return err
	}
	s.last, err = catalog.NewFile(s.dir.MapPath()).Load()
	return err
}

func (s *stopped) openReplicas() (err error) {
	id := s.dir.Identity()
	s.shards, err = shard.OpenNode(shard.NodeConfig{
		State: s.state, Log: s.wal, StablePath: s.dir.StablePath(), NodeID: id.NodeID, ClusterID: id.ClusterID,
	})
	return err
}

// survivor is what this node tells.
func (s *stopped) survivor() (cluster.Survivor, error) {
	id := s.dir.Identity()
	remains, err := s.shards.Remains()
	return cluster.Survivor{ClusterID: id.ClusterID, Node: id.NodeID, Map: s.last.Encode(), Shards: remains}, err
}

// survivors reads the reports. This node's must be among them and as it would be now.
func (s *stopped) survivors(paths []string) ([]cluster.Survivor, error) {
	own, err := s.survivor()
	if err != nil || len(paths) == 0 {
		return []cluster.Survivor{own}, err
	}
	var out []cluster.Survivor
	there := false
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var r cluster.Survivor
		if err := json.Unmarshal(b, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		there = there || r.Node == own.Node
		if r.Node == own.Node && !s.recovered(own) && !reflect.DeepEqual(r, own) {
			return nil, fmt.Errorf("%s: this node has changed since: take the reports anew, with all nodes stopped", path)
		}
		out = append(out, r)
	}
	if !there {
		return nil, fmt.Errorf("none of the reports is of this node (%s)", own.Node)
	}
	return out, nil
}

// recovered reports whether this node's part was begun already: its reports differ then.
func (s *stopped) recovered(own cluster.Survivor) bool {
	return slices.ContainsFunc(own.Shards, func(r shard.Remain) bool {
		return len(r.Members) == 1 && r.Members[0].Replica == r.Replica
	})
}

func tell(w io.Writer, plan *cluster.Recovery) {
	fmt.Fprintf(w, "given up:  %s\n", strings.Join(plan.Lost, ", "))
	for _, s := range plan.Shards {
		name := fmt.Sprintf("shard %d", s.ID)
		if s.ID == catalog.CatalogShard {
			name = "catalog"
		}
		at := "nothing is applied yet"
		if s.Newest.Applied.Now > 0 {
			at = "the last change applied is of " + time.UnixMicro(s.Newest.Applied.Now).UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s: %d voters are lost. Its copy on node %s becomes the only one: it ends at entry %d of term %d; %s\n",
			name, s.Lost, s.Node, s.Newest.Last, s.Newest.Term, at)
		for _, o := range s.Others {
			fmt.Fprintf(w, "  the older copy on node %s (entry %d of term %d) is destroyed\n", shard.NodeOf(o.Replica), o.Last, o.Term)
		}
	}
	fmt.Fprintln(w, "What lost nodes alone had acknowledged is lost. Lost nodes must never be started again.")
}

// lookTime is how long a lost node may take to answer.
const lookTime = 2 * time.Second

// seeThatLostAreDown refuses to give up nodes that answer.
func (s *stopped) seeThatLostAreDown(plan *cluster.Recovery) error {
	for _, id := range plan.Lost {
		n := s.last.Node(id)
		if n == nil || n.PeerAddr == "" {
			continue
		}
		c, err := peer.DialClient(n.PeerAddr, s.host.wire, s.cluster.ports.tls)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), lookTime)
		res, err := c.GetReplicas(ctx)
		cancel()
		_ = c.Close()
		if err == nil && res.GetNodeId() == id {
			return fmt.Errorf("node %s answers at %s: it is not lost. Stop it, and take its report too", id, n.PeerAddr)
		}
	}
	return nil
}

// recover does this node's part. The catalog comes last: without it nothing is done with
// the rest.
func (s *stopped) recover(plan *cluster.Recovery, w io.Writer) error {
	commands, err := plan.CatalogCommands()
	if err != nil {
		return err
	}
	slices.SortStableFunc(plan.Shards, func(a, b cluster.RecoveredShard) int {
		return int(int64(a.ID) - int64(b.ID)) // the catalog's number is the highest
	})
	own := s.dir.Identity().NodeID
	for _, sh := range plan.Shards {
		first := [][]byte{graph.RecoverCommand()}
		if sh.ID == catalog.CatalogShard {
			first = commands
		}
		if sh.Node == own {
			done, err := s.shards.Recover(sh.ID, first)
			if err != nil {
				return err
			}
			if !done {
				fmt.Fprintf(w, "shard %d was recovered before\n", sh.ID)
			}
			continue
		}
		have, err := s.shards.Replicas()
		if err == nil && slices.Contains(have, sh.ID) {
			err = s.destroy(sh.ID)
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintln(w, "done on this node. When it is done on all that are left, start them, add nodes, and run `liana check`.")
	return nil
}

func (s *stopped) destroy(id uint32) error {
	if id == catalog.CatalogShard {
		m, err := catalog.NewMachine(s.state)
		if err != nil {
			return err
		}
		return s.shards.DestroyReplica(id, m.Parts())
	}
	parts, err := graph.ReplicaParts(s.state, id, s.dir.Identity().Shards)
	if err != nil {
		return err
	}
	return s.shards.DestroyReplica(id, parts)
}
