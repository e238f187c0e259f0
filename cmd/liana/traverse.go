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

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// walkFlags are the flags of `traverse`.
type walkFlags struct {
	readFlags
	oldest                 bool
	since, until           string
	depth, limit, maxEdges int32
}

func (c *cli) traverseCommand() *cobra.Command {
	flags := new(walkFlags)
	cmd := &cobra.Command{
		Use:   "traverse VERTEX STEP [STEP...]",
		Short: "Walk along edges: who is reached in how many steps",
		Long: `Walk along edges from a vertex, breadth first: each vertex is shown once, with its
least depth and a vertex one step before it.

A step is TYPE[:in|:out][:LIMIT]: the edges that it follows, out of a vertex unless "in"
is said, and how many of each vertex (1000). The last step is repeated up to --depth.`,
		Example: `  liana traverse user:42 follow --depth 2
  liana traverse user:42 follow like:50 --limit 500
  liana traverse user:42 like like:in --since -7d -o json`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := flags.request(args)
			if err != nil {
				return err
			}
			client, err := c.graph()
			if err != nil {
				return err
			}
			return c.traverse(cmd.Context(), client, request)
		},
	}
	flags.register(cmd)
	registerWindow(cmd, &flags.since, &flags.until)
	cmd.Flags().BoolVar(&flags.oldest, "oldest", false, "oldest edges of a vertex first (default: newest first)")
	cmd.Flags().Int32Var(&flags.depth, "depth", 0, "steps, at most 16 (default: as many as are given)")
	cmd.Flags().Int32Var(&flags.limit, "limit", 0, "vertices to reach, at most 100000 (default 10000)")
	cmd.Flags().Int32Var(&flags.maxEdges, "max-edges", 0, "edges to read, at most 10000000 (default 1000000)")
	return cmd
}

func (f *walkFlags) request(args []string) (*lianav1.TraverseRequest, error) {
	start, err := parseVertex("VERTEX", args[0])
	if err != nil {
		return nil, err
	}
	r := &lianav1.TraverseRequest{Start: start, Depth: f.depth, Limit: f.limit, MaxEdges: f.maxEdges}
	window, err := parseWindow(f.since, f.until, time.Now())
	if err != nil {
		return nil, err
	}
	for _, text := range args[1:] {
		step, err := parseStep(text)
		if err != nil {
			return nil, err
		}
		step.Window = window
		if f.oldest {
			step.Order = lianav1.Order_OLDEST_FIRST
		}
		r.Steps = append(r.Steps, step)
	}
	r.Consistency, err = f.consistency()
	return r, err
}

// parseStep reads TYPE[:in|:out][:LIMIT].
func parseStep(text string) (*lianav1.Step, error) {
	parts := strings.Split(text, ":")
	kind, dir := parts[0], lianav1.Direction_OUT
	parts = parts[1:]
	if len(parts) > 0 && (parts[0] == "in" || parts[0] == "out") {
		dir = direction(parts[0] == "in")
		parts = parts[1:]
	}
	step := &lianav1.Step{Type: kind, Direction: dir}
	if len(parts) > 0 {
		limit, err := strconv.ParseInt(parts[0], 10, 32)
		if err != nil || limit < 1 {
			return nil, usagef("STEP: want TYPE[:in|:out][:LIMIT], such as like:in:50, got %q", text)
		}
		step.Limit = int32(limit)
		parts = parts[1:]
	}
	if kind == "" || len(parts) > 0 {
		return nil, usagef("STEP: want TYPE[:in|:out][:LIMIT], such as like:in:50, got %q", text)
	}
	return step, nil
}

// traverse prints what is reached once the walk has ended: a table needs its widths.
func (c *cli) traverse(ctx context.Context, client lianav1.GraphClient, request *lianav1.TraverseRequest) error {
	if field := notText(request.ProtoReflect()); field != "" {
		return usagef("%s: want UTF-8 text", field)
	}
	ctx, dog, cancel := newWatchdog(ctx, c.timeout)
	defer cancel()
	stream, err := client.Traverse(ctx, request)
	if err != nil {
		return err
	}
	whole := new(lianav1.TraverseResponse)
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && errors.Is(context.Cause(ctx), errStalled) {
			return fmt.Errorf("traverse: %w for %s", errStalled, c.timeout)
		}
		if err != nil {
			return err
		}
		dog.feed()
		whole.Vertices = append(whole.Vertices, part.GetVertices()...)
		whole.End = part.GetEnd()
	}
	if err := c.out.message(whole, func(w io.Writer) { reachedTable(w, whole.GetVertices()) }); err != nil {
		return err
	}
	if c.out.json {
		return nil
	}
	for _, cut := range whole.GetEnd().GetCuts() {
		fmt.Fprintln(c.stderr, cutText(cut, whole.GetEnd()))
	}
	return nil
}

func reachedTable(w io.Writer, vertices []*lianav1.ReachedVertex) {
	fmt.Fprintln(w, "DEPTH\tVERTEX\tFROM")
	for _, v := range vertices {
		fmt.Fprintf(w, "%d\t%s\t%s\n", v.GetDepth(), vertexText(v.GetVertex()), vertexText(v.GetFrom()))
	}
}

func cutText(cut *lianav1.TraverseCut, end *lianav1.TraverseEnd) string {
	switch cut.GetLimit() {
	case lianav1.TraverseCut_STEP_LIMIT:
		limits := end.GetStepLimits()
		limit := int32(0)
		if n := len(limits); n > 0 {
			limit = limits[min(int(cut.GetDepth()), n)-1]
		}
		return fmt.Sprintf("depth %d: %d vertices have more than %d edges; the rest was left out", cut.GetDepth(), cut.GetVertices(), limit)
	case lianav1.TraverseCut_VERTICES:
		return fmt.Sprintf("depth %d: ended at %d vertices; there may be more (--limit)", cut.GetDepth(), end.GetLimit())
	}
	return fmt.Sprintf("depth %d: ended after %d edges; there may be more (--max-edges)", cut.GetDepth(), end.GetEdgesRead())
}
