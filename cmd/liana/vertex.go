package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// vertexCall begins a job on a vertex.
type vertexCall func(context.Context, lianav1.GraphClient, *lianav1.Vertex) (*lianav1.VertexJob, error)

// vertexPause is the pause between looks at a job that is waited for.
const vertexPause = 200 * time.Millisecond

func (c *cli) vertexCommand() *cobra.Command {
	begin := func(name, short, long string, call vertexCall) *cobra.Command {
		wait := false
		cmd := &cobra.Command{
			Use: name + " VERTEX", Short: short, Long: long,
			Example: fmt.Sprintf("  liana vertex %s user:42\n  liana vertex %s user:42 --wait", name, name),
			Args:    cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return c.changeVertex(cmd.Context(), args[0], wait, call)
			},
		}
		cmd.Flags().BoolVar(&wait, "wait", false, "wait until the job has ended, and show how far it is")
		return cmd
	}
	show := &cobra.Command{
		Use: "show VERTEX", Short: "Show the state of a vertex, and of the job on it",
		Example: "  liana vertex show user:42", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeVertex(cmd.Context(), args[0], false, getVertexJob)
		},
	}
	jobs := &cobra.Command{
		Use: "jobs", Short: "List the jobs at work in the background",
		Long:    "List the jobs at work in the background: vertices that are being deleted, hidden\nor restored, and derived counters that are being counted.",
		Example: "  liana vertex jobs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := ask(cmd.Context(), c, c.graph, lianav1.GraphClient.ListJobs, new(lianav1.ListJobsRequest))
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) { jobsTable(w, answer) })
		},
	}
	return group("vertex", "Delete, hide and restore vertices",
		begin("delete", "Delete a vertex: its edges in both directions, and its counters",
			"Delete a vertex: its edges in both directions, and its counters. This begins a job and\nreturns. Until it has ended, edges to and from the vertex are refused.",
			func(ctx context.Context, g lianav1.GraphClient, v *lianav1.Vertex) (*lianav1.VertexJob, error) {
				return g.DeleteVertex(ctx, &lianav1.DeleteVertexRequest{Vertex: v})
			}),
		begin("hide", "Take the edges of a vertex out of every list and count",
			"Take the edges of a vertex out of every list and count, until it is restored. This begins\na job and returns. New edges to and from the vertex are refused.",
			func(ctx context.Context, g lianav1.GraphClient, v *lianav1.Vertex) (*lianav1.VertexJob, error) {
				return g.HideVertex(ctx, &lianav1.HideVertexRequest{Vertex: v})
			}),
		begin("restore", "Bring the edges of a hidden vertex back as they were",
			"Bring the edges of a hidden vertex back as they were, but for those whose other end is\nhidden too. This begins a job and returns.",
			func(ctx context.Context, g lianav1.GraphClient, v *lianav1.Vertex) (*lianav1.VertexJob, error) {
				return g.RestoreVertex(ctx, &lianav1.RestoreVertexRequest{Vertex: v})
			}),
		show, jobs)
}

func getVertexJob(ctx context.Context, g lianav1.GraphClient, v *lianav1.Vertex) (*lianav1.VertexJob, error) {
	return g.GetVertexJob(ctx, &lianav1.GetVertexJobRequest{Vertex: v})
}

func (c *cli) changeVertex(ctx context.Context, name string, wait bool, begin vertexCall) error {
	v, err := parseVertex("VERTEX", name)
	if err != nil {
		return err
	}
	do := func(what vertexCall) (*lianav1.VertexJob, error) {
		return ask(ctx, c, c.graph, func(g lianav1.GraphClient, ctx context.Context, v *lianav1.Vertex, _ ...grpc.CallOption) (*lianav1.VertexJob, error) {
			return what(ctx, g, v)
		}, v)
	}
	job, err := do(begin)
	for err == nil && wait && atWork(job.GetState()) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(vertexPause):
		}
		job, err = do(getVertexJob)
	}
	if err != nil {
		return err
	}
	return c.out.message(job, func(w io.Writer) {
		fmt.Fprintln(w, "VERTEX\tSTATE\tEDGES\tDONE")
		vertexRow(w, job)
	})
}

func atWork(s lianav1.VertexState) bool {
	return s == lianav1.VertexState_VERTEX_DELETING || s == lianav1.VertexState_VERTEX_HIDING || s == lianav1.VertexState_VERTEX_RESTORING
}

func vertexRow(w io.Writer, j *lianav1.VertexJob) {
	state := strings.ToLower(strings.TrimPrefix(j.GetState().String(), "VERTEX_"))
	fmt.Fprintf(w, "%s:%d\t%s\t%d\t%d\n", j.GetVertex().GetType(), j.GetVertex().GetId(), state, j.GetTotal(), j.GetDone())
}

func jobsTable(w io.Writer, answer *lianav1.ListJobsResponse) {
	fmt.Fprintln(w, "VERTEX\tSTATE\tEDGES\tDONE")
	for _, j := range answer.GetVertices() {
		vertexRow(w, j)
	}
	for _, b := range answer.GetBackfills() {
		fmt.Fprintf(w, "%s %s\tcounting\t\t%.0f %%\n", b.GetVertexType(), b.GetMetric(), 100*b.GetDone())
	}
}
