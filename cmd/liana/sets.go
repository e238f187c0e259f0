package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// setFlags are the flags of commands that combine two edge lists.
type setFlags struct {
	readFlags
	since, until, pageToken string
	limit, maxEdges         int32
}

func (f *setFlags) register(cmd *cobra.Command, limit string, window bool) {
	f.readFlags.register(cmd)
	cmd.Flags().Int32Var(&f.limit, "limit", 0, limit)
	cmd.Flags().Int32Var(&f.maxEdges, "max-edges", 0, "edges to look at, at most 1000000 (default 100000)")
	cmd.Flags().StringVar(&f.pageToken, "page-token", "", "go on where an earlier page ended (its next_page_token)")
	if window {
		cmd.Flags().StringVar(&f.since, "since", "", "only edges of LIST B at this time or later")
		cmd.Flags().StringVar(&f.until, "until", "", "only edges of LIST B before this time")
	}
}

// setPage is what the answers to all set queries have.
type setPage interface {
	proto.Message
	GetMembers() []*lianav1.SetMember
	GetType() string
	GetNextPageToken() string
}

const listForms = `A list is VERTEX TYPE[:in]: the edges that leave the vertex, or with ":in" those that
reach it. What is combined are the vertices at their other ends.`

func (c *cli) intersectCommand() *cobra.Command {
	flags := new(setFlags)
	cmd := &cobra.Command{
		Use:   "intersect VERTEX TYPE VERTEX [VERTEX...] TYPE",
		Short: "Vertices that two edge lists share: who of those I follow liked this",
		Long: `Vertices that two edge lists share, newest first by the shorter of the lists. With more
than one vertex for the second list: those that each of these lists shares with the first.

` + listForms,
		Example: `  liana intersect user:42 follow note:7 like:in
  liana intersect user:42 follow note:7 note:8 note:9 like:in --limit 5`,
		Args: cobra.MinimumNArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 4 {
				return c.intersectMany(cmd.Context(), flags, args)
			}
			a, b, err := flags.sides(args)
			if err != nil {
				return err
			}
			consistency, err := flags.consistency()
			if err != nil {
				return err
			}
			return setCall(cmd.Context(), c, lianav1.GraphClient.Intersect, &lianav1.IntersectRequest{
				A: a, B: b, PageSize: flags.limit, PageToken: flags.pageToken, MaxEdges: flags.maxEdges, Consistency: consistency,
			})
		},
	}
	flags.register(cmd, "vertices of a page, at most 10000 (default 100); of each list where there are many, at most 1000 (default 3)", true)
	return cmd
}

func (c *cli) differenceCommand() *cobra.Command {
	flags := new(setFlags)
	cmd := &cobra.Command{
		Use:     "difference VERTEX TYPE VERTEX TYPE",
		Short:   "Vertices of an edge list that another lacks: whom I follow who does not follow me",
		Long:    "Vertices of the first edge list that the second does not have, newest first.\n\n" + listForms,
		Example: "  liana difference user:42 follow user:42 follow:in",
		Args:    cobra.ExactArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, b, err := flags.sides(args)
			if err != nil {
				return err
			}
			consistency, err := flags.consistency()
			if err != nil {
				return err
			}
			return setCall(cmd.Context(), c, lianav1.GraphClient.Difference, &lianav1.DifferenceRequest{
				A: a, B: b, PageSize: flags.limit, PageToken: flags.pageToken, MaxEdges: flags.maxEdges, Consistency: consistency,
			})
		},
	}
	flags.register(cmd, "vertices of a page, at most 10000 (default 100)", true)
	return cmd
}

func (c *cli) unionCommand() *cobra.Command {
	flags := new(setFlags)
	cmd := &cobra.Command{
		Use:     "union VERTEX TYPE VERTEX TYPE",
		Short:   "Vertices of either of two edge lists",
		Long:    "Vertices that one or both of two edge lists have, by id.\n\n" + listForms,
		Example: "  liana union user:42 follow user:42 follow:in",
		Args:    cobra.ExactArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, b, err := flags.sides(args)
			if err != nil {
				return err
			}
			consistency, err := flags.consistency()
			if err != nil {
				return err
			}
			return setCall(cmd.Context(), c, lianav1.GraphClient.Union, &lianav1.UnionRequest{
				A: a, B: b, PageSize: flags.limit, PageToken: flags.pageToken, MaxEdges: flags.maxEdges, Consistency: consistency,
			})
		},
	}
	flags.register(cmd, "vertices of a page, at most 10000 (default 100)", false)
	return cmd
}

// parseListKind reads TYPE[:in|:out].
func parseListKind(text string) (kind string, dir lianav1.Direction, err error) {
	kind, way, found := strings.Cut(text, ":")
	if kind == "" || found && way != "in" && way != "out" {
		return "", 0, usagef("TYPE: want TYPE or TYPE:in, such as like:in, got %q", text)
	}
	return kind, direction(way == "in"), nil
}

func parseEdgeList(vertex, kind string) (*lianav1.EdgeList, error) {
	l := new(lianav1.EdgeList)
	var err error
	if l.Vertex, err = parseVertex("VERTEX", vertex); err != nil {
		return nil, err
	}
	l.Type, l.Direction, err = parseListKind(kind)
	return l, err
}

// sides reads the two lists of a command line.
func (f *setFlags) sides(args []string) (a, b *lianav1.EdgeList, err error) {
	if a, err = parseEdgeList(args[0], args[1]); err != nil {
		return nil, nil, err
	}
	if b, err = parseEdgeList(args[2], args[3]); err != nil {
		return nil, nil, err
	}
	b.Window, err = parseWindow(f.since, f.until, time.Now())
	return a, b, err
}

// setCall asks for a page and prints it.
func setCall[Req proto.Message, Resp setPage](ctx context.Context, c *cli,
	method func(lianav1.GraphClient, context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) error {
	page, err := ask(ctx, c, c.graph, method, req)
	if err != nil {
		return err
	}
	err = c.out.message(page, func(w io.Writer) {
		fmt.Fprintln(w, "VERTEX\tTIME A\tTIME B")
		for _, m := range page.GetMembers() {
			fmt.Fprintf(w, "%s\n", memberRow(page.GetType(), m))
		}
	})
	if next := page.GetNextPageToken(); err == nil && next != "" && !c.out.json {
		fmt.Fprintf(c.stderr, "there may be more: --page-token %s\n", next)
	}
	return err
}

func memberRow(kind string, m *lianav1.SetMember) string {
	at := func(micros *int64) string {
		if micros == nil {
			return "-"
		}
		return timeText(*micros)
	}
	return kind + ":" + strconv.FormatUint(m.GetId(), 10) + "\t" + at(m.ATime) + "\t" + at(m.BTime)
}

func (c *cli) intersectMany(ctx context.Context, flags *setFlags, args []string) error {
	if flags.pageToken != "" {
		return usagef("--page-token: of one list only")
	}
	last := len(args) - 1
	req := &lianav1.IntersectManyRequest{Limit: flags.limit, MaxEdges: flags.maxEdges}
	var err error
	if req.A, err = parseEdgeList(args[0], args[1]); err != nil {
		return err
	}
	for _, text := range args[2:last] {
		v, err := parseVertex("VERTEX", text)
		if err != nil {
			return err
		}
		req.Vertices = append(req.Vertices, v)
	}
	if req.Type, req.Direction, err = parseListKind(args[last]); err != nil {
		return err
	}
	if req.Window, err = parseWindow(flags.since, flags.until, time.Now()); err != nil {
		return err
	}
	if req.Consistency, err = flags.consistency(); err != nil {
		return err
	}
	answer, err := ask(ctx, c, c.graph, lianav1.GraphClient.IntersectMany, req)
	if err != nil {
		return err
	}
	if len(answer.GetResults()) != len(req.Vertices) {
		return fmt.Errorf("the server answered %d of %d questions", len(answer.GetResults()), len(req.Vertices))
	}
	return c.out.message(answer, func(w io.Writer) {
		fmt.Fprintln(w, "LIST\tVERTEX\tTIME A\tTIME B")
		for i, r := range answer.GetResults() {
			for _, m := range r.GetMembers() {
				fmt.Fprintf(w, "%s\t%s\n", vertexText(req.Vertices[i]), memberRow(answer.GetType(), m))
			}
			if r.GetMore() {
				fmt.Fprintf(w, "%s\tmore\t\t\n", vertexText(req.Vertices[i]))
			}
		}
	})
}
