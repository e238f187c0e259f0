package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// watchFlags are the flags of `watch`.
type watchFlags struct {
	token, file            string
	oldest, snapshot, once bool
	kinds, edges, vertices []string
	vertex                 string
}

func (c *cli) watchCommand() *cobra.Command {
	flags := new(watchFlags)
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print changes of edges and counters as they happen",
		Long: `Print changes of edges and counters as they happen, until it is interrupted: with -o json
one change a line. It goes on by itself when a server stops or a connection is lost.

With --resume-file it goes on where an earlier run ended: the file holds the token up to which
all was printed. It may print some changes again, never leave one out; their slot and position
tell. With --snapshot it prints all edges first, as changes of the kind EDGE_ADDED without a
position, then what has changed since it began: put or remove what each line says, in their
order, and the copy becomes exact.`,
		Example: `  liana watch
  liana watch --edge-type like --vertex note:7
  liana watch --snapshot --resume-file likes.token --edge-type like -o json | indexer`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			request, err := flags.request()
			if err != nil {
				return err
			}
			return c.watch(cmd.Context(), flags, request)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.token, "token", "", "go on behind this resume_token of an earlier watch")
	f.StringVar(&flags.file, "resume-file", "", "file that keeps the token; where it exists the watch goes on behind it")
	f.BoolVar(&flags.oldest, "oldest", false, "begin with the oldest changes that are kept (default: with what comes now)")
	f.BoolVar(&flags.snapshot, "snapshot", false, "print all edges first")
	f.BoolVar(&flags.once, "until-idle", false, "end when everything up to now is printed")
	f.StringSliceVar(&flags.kinds, "kind", nil, "only these changes: added, deleted, updated, counter")
	f.StringSliceVar(&flags.edges, "edge-type", nil, "only edges of these types")
	f.StringSliceVar(&flags.vertices, "vertex-type", nil, "only with a vertex of one of these types")
	f.StringVar(&flags.vertex, "vertex", "", "only with this vertex")
	cmd.MarkFlagsMutuallyExclusive("token", "oldest", "snapshot")
	cmd.MarkFlagsMutuallyExclusive("token", "resume-file")
	return cmd
}

var kindNames = map[string]lianav1.ChangeKind{
	"added": lianav1.ChangeKind_EDGE_ADDED, "deleted": lianav1.ChangeKind_EDGE_DELETED,
	"updated": lianav1.ChangeKind_EDGE_UPDATED, "counter": lianav1.ChangeKind_COUNTER_CHANGED,
}

func (f *watchFlags) request() (*lianav1.WatchRequest, error) {
	r := &lianav1.WatchRequest{ResumeToken: f.token, EdgeTypes: f.edges, VertexTypes: f.vertices, HeartbeatMs: 1000}
	if f.oldest {
		r.Start = lianav1.WatchStart_OLDEST
	}
	for _, name := range f.kinds {
		kind, ok := kindNames[name]
		if !ok {
			return nil, usagef("--kind: want added, deleted, updated or counter, got %q", name)
		}
		r.Kinds = append(r.Kinds, kind)
	}
	if f.vertex != "" {
		var err error
		if r.Vertex, err = parseVertex("--vertex", f.vertex); err != nil {
			return nil, err
		}
	}
	if f.file == "" {
		return r, nil
	}
	text, err := os.ReadFile(f.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if r.ResumeToken = strings.TrimSpace(string(text)); r.ResumeToken != "" {
		f.snapshot = false // it was printed by the run that wrote the file
	}
	return r, nil
}

// errIdle: everything up to now is printed.
var errIdle = errors.New("idle")

// watchPause is the time between attempts to go on.
const watchPause = 200 * time.Millisecond

func (c *cli) watch(ctx context.Context, flags *watchFlags, request *lianav1.WatchRequest) error {
	if field := notText(request.ProtoReflect()); field != "" {
		return usagef("%s: want UTF-8 text", field)
	}
	conn, err := c.dial()
	if err != nil {
		return err
	}
	client := lianav1.NewChangesClient(conn)
	if !c.out.json {
		fmt.Fprintln(c.stdout, "CHANGE\tWHAT\tTIME OR VALUE\tSLOT\tPOSITION")
	}
	for {
		err := c.watchOnce(ctx, client, flags, request)
		switch {
		case errors.Is(err, errIdle), ctx.Err() != nil:
			return nil
		case !goesOn(err) || request.ResumeToken == "" && flags.snapshot:
			return err
		}
		fmt.Fprintf(c.stderr, "watch: %s; going on\n", status.Convert(err).Message())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPause):
		}
	}
}

// goesOn reports whether a watch that ended so can go on with its token.
func goesOn(err error) bool {
	st := status.Convert(err)
	if st.Code() == codes.Unavailable {
		return true
	}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetReason() == "SLOW_WATCHER" {
			return true
		}
	}
	return false
}

// watchOnce is one stream; the token of the request moves with what is printed.
func (c *cli) watchOnce(ctx context.Context, client lianav1.ChangesClient, flags *watchFlags, request *lianav1.WatchRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Watch(ctx, request)
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if first && flags.snapshot {
			// The watch is open: what changes from now on comes behind the edges.
			if err := c.printSnapshot(ctx, flags); err != nil {
				return err
			}
			flags.snapshot = false
			request.ResumeToken = m.GetResumeToken()
			return c.watchOnce(ctx, client, flags, request)
		}
		for _, change := range m.GetChanges() {
			if err := c.printChange(change); err != nil {
				return err
			}
		}
		if m.GetResumeToken() == "" {
			continue
		}
		request.ResumeToken = m.GetResumeToken()
		if err := flags.save(request.ResumeToken); err != nil {
			return err
		}
		if flags.once && !first && len(m.GetChanges()) == 0 {
			return errIdle
		}
	}
}

func (f *watchFlags) save(token string) error {
	if f.file == "" {
		return nil
	}
	return writeWhole(f.file, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, token)
		return err
	})
}

// printSnapshot prints all edges that the filters take.
func (c *cli) printSnapshot(ctx context.Context, flags *watchFlags) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	kinds := flags.edges
	if len(kinds) == 0 {
		kinds = []string{""}
	}
	for _, kind := range kinds {
		stream, err := admin.ExportEdges(ctx, &lianav1.ExportEdgesRequest{Type: kind})
		if err != nil {
			return err
		}
		for {
			part, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			for _, e := range part.GetEdges() {
				if !flags.takes(e) {
					continue
				}
				if err := c.printChange(&lianav1.Change{Kind: lianav1.ChangeKind_EDGE_ADDED, Edge: e}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// takes applies the filters that an export does not have.
func (f *watchFlags) takes(e *lianav1.Edge) bool {
	ends := []*lianav1.Vertex{e.GetSrc(), e.GetDst()}
	if f.vertex != "" && vertexText(ends[0]) != f.vertex && vertexText(ends[1]) != f.vertex {
		return false
	}
	if len(f.vertices) == 0 {
		return true
	}
	for _, name := range f.vertices {
		if ends[0].GetType() == name || ends[1].GetType() == name {
			return true
		}
	}
	return false
}

func (c *cli) printChange(change *lianav1.Change) error {
	if c.out.json {
		text, err := messageJSON(change)
		if err != nil {
			return err
		}
		_, err = c.stdout.Write(append(text, '\n'))
		return err
	}
	what, value := "", ""
	switch e := change.GetEdge(); {
	case e != nil:
		what = fmt.Sprintf("%s %s %s", vertexText(e.GetSrc()), e.GetType(), vertexText(e.GetDst()))
		value = timeText(e.GetTime())
	case change.GetCounter().GetKey() != "":
		what, value = change.GetCounter().GetKey(), counterChange(change)
	default:
		what, value = vertexText(change.GetCounter().GetVertex())+" "+change.GetCounter().GetMetric(), counterChange(change)
	}
	_, err := fmt.Fprintf(c.stdout, "%s\t%s\t%s\t%d\t%d\n", change.GetKind(), what, value, change.GetSlot(), change.GetPosition())
	return err
}

func counterChange(change *lianav1.Change) string {
	if change.GetGone() {
		return "removed"
	}
	return fmt.Sprint(change.GetValue())
}
