package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

const (
	defaultListLimit = 100
	// The largest page that the API serves.
	maxPageSize = 10_000
)

// listFlags are the flags of `edge list`.
type listFlags struct {
	readFlags
	in, oldest, byID, descending, all bool
	limit                             int64
	skip                              uint64
	since, until, pageToken           string
}

func (f *listFlags) register(cmd *cobra.Command) {
	f.readFlags.register(cmd)
	registerDirection(cmd, &f.in)
	registerWindow(cmd, &f.since, &f.until)
	cmd.Flags().BoolVar(&f.oldest, "oldest", false, "oldest first (default: newest first)")
	cmd.Flags().BoolVar(&f.byID, "by-id", false, "in the order of the other vertex's id")
	cmd.Flags().BoolVar(&f.descending, "descending", false, "with --by-id: largest id first")
	cmd.Flags().Int64Var(&f.limit, "limit", defaultListLimit, "list at most so many edges")
	cmd.Flags().BoolVar(&f.all, "all", false, "list all edges, page after page")
	cmd.Flags().Uint64Var(&f.skip, "skip", 0, "pass over so many edges first")
	cmd.Flags().StringVar(&f.pageToken, "page-token", "", "go on where an earlier listing ended (its next_page_token)")
	cmd.MarkFlagsMutuallyExclusive("limit", "all")
	cmd.MarkFlagsMutuallyExclusive("skip", "page-token")
	cmd.MarkFlagsMutuallyExclusive("oldest", "by-id")
	cmd.MarkFlagsMutuallyExclusive("since", "by-id")
	cmd.MarkFlagsMutuallyExclusive("until", "by-id")
}

// request builds the request for the first page.
func (f *listFlags) request(args []string) (*lianav1.ListEdgesRequest, error) {
	vertex, err := parseVertex("VERTEX", args[0])
	if err != nil {
		return nil, err
	}
	if f.limit < 1 {
		return nil, usagef("--limit: want 1 or more, got %d", f.limit)
	}
	if f.descending && !f.byID {
		return nil, usagef("--descending goes with --by-id (newest first is the default, --oldest turns it round)")
	}
	request := &lianav1.ListEdgesRequest{
		Vertex: vertex, Type: args[1], Direction: direction(f.in), Order: f.order(),
		Skip: f.skip, PageToken: f.pageToken,
	}
	if request.Window, err = parseWindow(f.since, f.until, time.Now()); err != nil {
		return nil, err
	}
	request.Consistency, err = f.consistency()
	return request, err
}

func (f *listFlags) order() lianav1.Order {
	switch {
	case f.byID && f.descending:
		return lianav1.Order_ID_DESCENDING
	case f.byID:
		return lianav1.Order_ID_ASCENDING
	case f.oldest:
		return lianav1.Order_OLDEST_FIRST
	default:
		return lianav1.Order_NEWEST_FIRST
	}
}

func (c *cli) edgeListCommand() *cobra.Command {
	flags := new(listFlags)
	cmd := &cobra.Command{
		Use:   "list VERTEX TYPE",
		Short: "List the edges of a vertex, newest first",
		Example: `  liana edge list note:7 like --in --limit 10
  liana edge list user:42 like --oldest --since -30d
  liana edge list note:7 like --in --all -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := flags.request(args)
			if err != nil {
				return err
			}
			client, err := c.graph()
			if err != nil {
				return err
			}
			limit := flags.limit
			if flags.all {
				limit = -1
			}
			return c.list(cmd.Context(), client, request, limit)
		},
	}
	flags.register(cmd)
	return cmd
}

// list prints up to limit edges (all for -1), page after page: the server also cuts
// pages by bytes, so even a small limit may take several.
func (c *cli) list(ctx context.Context, client lianav1.GraphClient, request *lianav1.ListEdgesRequest, limit int64) error {
	pages := &edgePages{printer: c.out}
	for {
		request.PageSize = maxPageSize
		if left := limit - int64(pages.printed); limit >= 0 && left < maxPageSize {
			request.PageSize = int32(left)
		}
		answer, err := call(ctx, c, client.ListEdges, request)
		if err != nil {
			return err
		}
		if err := pages.page(answer.GetEdges()); err != nil {
			return err
		}
		next := answer.GetNextPageToken()
		if next == "" || int64(pages.printed) == limit {
			if next != "" && !c.out.json {
				fmt.Fprintf(c.stderr, "there are more: --page-token %s\n", next)
			}
			return pages.end(next, answer.GetToken())
		}
		request.PageToken, request.Skip = next, 0
	}
}
