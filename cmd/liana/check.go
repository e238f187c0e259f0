package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// Exit codes of `liana check`.
const (
	exitFaults     = 1
	exitNotChecked = 2
)

// checkStall is how long a server may work on one list before the check is given up.
const checkStall = 10 * time.Minute

// offlineChecker checks a data directory that no server has open, without writing to
// it. It reports progress now and then (done = false), and returns the last report.
// An error says that the directory could not be checked; faults are no error.
type offlineChecker func(ctx context.Context, dir string, progress func(*lianav1.CheckResponse)) (*lianav1.CheckResponse, error)

func (c *cli) checkCommand() *cobra.Command {
	var dir string
	var cluster bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Prove lists, counts and forward = inverse, on a server or in a data directory",
		Long: `Prove the structure of every list, and that forward and inverse edges, counts and
derived counters agree: on the server at --addr, or in a data directory that no
server has open (--data-dir; it is only read).

With --cluster all nodes are checked, through the one at --addr: also that the replicas of
a shard say the same, and edges whose ends lie on different nodes. Without it a node
proves what it has replicas of.

Exit codes: 0 clean, 1 faults found, 2 could not check.`,
		Example: `  liana check
  liana check --addr 127.0.0.1:7400 -o json
  liana check --cluster
  liana check --data-dir /var/lib/liana`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			offline := cmd.Flags().Changed("data-dir")
			switch {
			case offline && cluster:
				return usagef("--data-dir and --cluster exclude each other")
			case offline && cmd.Flags().Changed("addr"):
				return usagef("--data-dir and --addr exclude each other")
			case offline && dir == "":
				return usagef("--data-dir: is empty; name a directory")
			}
			bar := c.newProgress("lists")
			report := func(r *lianav1.CheckResponse) { bar.update(r.GetLists(), shareOf(r.GetLists(), r.GetListsTotal())) }
			var last *lianav1.CheckResponse
			var err error
			if offline {
				last, err = c.checkDirectory(cmd.Context(), dir, report)
			} else {
				last, err = c.checkServer(cmd.Context(), &lianav1.CheckRequest{Cluster: cluster}, c.stallLimit(cmd, checkStall), report)
			}
			bar.clear()
			if err != nil {
				return &exitError{exitNotChecked, err}
			}
			return c.printCheck(last)
		},
	}
	cmd.Flags().BoolVar(&cluster, "cluster", false, "check all nodes of the cluster")
	cmd.Flags().StringVar(&dir, "data-dir", "", "check this data directory instead of a server")
	return cmd
}

func shareOf(done, total uint64) float64 {
	if total == 0 {
		return -1
	}
	return float64(done) / float64(total)
}

func (c *cli) checkDirectory(ctx context.Context, dir string, report func(*lianav1.CheckResponse)) (*lianav1.CheckResponse, error) {
	if c.checkOffline == nil {
		return nil, errors.New("this build of liana cannot open a data directory")
	}
	return c.checkOffline(ctx, dir, report)
}

func (c *cli) checkServer(ctx context.Context, req *lianav1.CheckRequest, stall time.Duration, report func(*lianav1.CheckResponse)) (*lianav1.CheckResponse, error) {
	client, err := c.admin()
	if err != nil {
		return nil, err
	}
	ctx, dog, cancel := newWatchdog(ctx, stall)
	defer cancel()
	stream, err := client.Check(ctx, req)
	if err != nil {
		return nil, err
	}
	for {
		answer, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errors.New("the server ended the check before it was done")
		case err != nil && errors.Is(context.Cause(ctx), errStalled):
			return nil, fmt.Errorf("check: %w for %s", errStalled, stall)
		case err != nil:
			return nil, err
		case answer.GetDone():
			return answer, nil
		}
		dog.feed()
		report(answer)
	}
}

func (c *cli) printCheck(last *lianav1.CheckResponse) error {
	err := c.out.message(last, func(w io.Writer) {
		for _, finding := range last.GetFindings() {
			fmt.Fprintln(w, finding)
		}
		if untold := last.GetFaults() - min(last.GetFaults(), uint64(len(last.GetFindings()))); untold > 0 {
			fmt.Fprintf(w, "… and %d more\n", untold)
		}
		verdict := "clean"
		if last.GetFaults() > 0 {
			verdict = fmt.Sprintf("%d faults", last.GetFaults())
		}
		if n := last.GetSkipped(); n > 0 {
			fmt.Fprintf(w, "%d that are on their way to the other end, end on another node, or kept changing, were passed over\n", n)
		}
		fmt.Fprintf(w, "%d lists, %d edges: %s\n", last.GetLists(), last.GetEdges(), verdict)
	})
	if err != nil {
		return &exitError{exitNotChecked, err}
	}
	if last.GetFaults() > 0 {
		return &exitError{code: exitFaults}
	}
	return nil
}
