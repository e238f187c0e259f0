package server

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// changeService is liana.v1.Changes.
type changeService struct {
	pb.UnimplementedChangesServer
	*calls
}

// errSlowWatcher: a watcher did not take a message in time.
var errSlowWatcher = errors.New("the watcher does not read")

// Bounds of one message of a watch. A change is far smaller than what is left to 4 MiB.
const (
	watchBytes   = 1 << 20
	watchChanges = 10_000
)

func (s *changeService) Watch(req *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	g := s.domain()
	n := names{g.Schema()}
	q, err := n.watch(req)
	if err != nil {
		return err
	}
	ctx := stream.Context()
	token := q.Token
	err = g.Watch(ctx, q, func(w graph.Watched) error {
		if err := sendChanges(names{g.Schema()}, stream, w); err != nil {
			return err
		}
		token = w.Token
		return nil
	})
	// Why the stream ends says more than what that did to a call.
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	if errors.Is(err, errNotRead) {
		err = errSlowWatcher
	}
	return annotate(err, watchFacts(err, token)...)
}

// watchFacts are what a client needs to know of the end of a watch.
func watchFacts(err error, token string) (pairs []string) {
	if token != "" {
		pairs = append(pairs, "resume_token", token)
	}
	var trimmed *graph.TrimmedError
	if errors.As(err, &trimmed) {
		pairs = append(pairs, "shard", strconv.FormatUint(uint64(trimmed.Shard), 10), "oldest_position", strconv.FormatUint(trimmed.Oldest, 10))
	}
	return pairs
}

// watch is a request as the domain's query.
func (n names) watch(req *pb.WatchRequest) (graph.WatchQuery, error) {
	q := graph.WatchQuery{Token: req.GetResumeToken(), Heartbeat: time.Duration(req.GetHeartbeatMs()) * time.Millisecond}
	if ms := req.GetHeartbeatMs(); ms != 0 && (ms < 100 || ms > 60_000) {
		return q, invalid("heartbeat_ms", "100 to 60000, or 0 for 5000", "%d", ms)
	}
	switch req.GetStart() {
	case pb.WatchStart_WATCH_START_UNSPECIFIED, pb.WatchStart_NOW:
	case pb.WatchStart_OLDEST:
		q.Start = graph.WatchOldest
	default:
		return q, invalid("start", "NOW, OLDEST", "unknown number %d", req.GetStart())
	}
	var err error
	q.Filter, err = n.changeFilter(req)
	return q, err
}

func (n names) changeFilter(req *pb.WatchRequest) (f graph.ChangeFilter, err error) {
	for i, k := range req.GetKinds() {
		if k < pb.ChangeKind_EDGE_ADDED || k > pb.ChangeKind_COUNTER_CHANGED {
			return f, invalid(index("kinds", i), "EDGE_ADDED, EDGE_DELETED, EDGE_UPDATED, COUNTER_CHANGED", "unknown number %d", k)
		}
		f.Kinds = append(f.Kinds, graph.ChangeKind(k))
	}
	for i, name := range req.GetEdgeTypes() {
		def, err := n.edgeType(index("edge_types", i), name)
		if err != nil {
			return f, err
		}
		f.EdgeTypes = append(f.EdgeTypes, def.ID)
	}
	for i, name := range req.GetVertexTypes() {
		v, err := n.vertex("", &pb.Vertex{Type: name})
		if err != nil {
			return f, paths{".type", index("vertex_types", i)}.rename(err)
		}
		f.VertexTypes = append(f.VertexTypes, v.Type)
	}
	if req.GetVertex() != nil {
		v, err := n.vertex("vertex", req.GetVertex())
		if err != nil {
			return f, err
		}
		if err := checkID("vertex.id", v.ID); err != nil {
			return f, err
		}
		f.Vertex = &v
	}
	return f, nil
}

// sendChanges sends a part of a watch in as many messages as it takes. The token comes with
// the last.
func sendChanges(n names, stream grpc.ServerStreamingServer[pb.WatchResponse], w graph.Watched) error {
	m, size := new(pb.WatchResponse), 0
	for i := range w.Changes {
		c, err := n.change(&w.Changes[i])
		if err != nil {
			return err
		}
		if size > watchBytes || len(m.Changes) == watchChanges {
			if err := stream.Send(m); err != nil {
				return err
			}
			m, size = new(pb.WatchResponse), 0
		}
		m.Changes = append(m.Changes, c)
		size += proto.Size(c)
	}
	m.ResumeToken = w.Token
	return stream.Send(m)
}

func (n names) change(c *graph.Change) (*pb.Change, error) {
	out := &pb.Change{Kind: pb.ChangeKind(c.Kind), Slot: uint32(c.Slot()), Position: c.Position}
	if c.Kind == graph.CounterChanged {
		out.Counter, out.Value, out.Gone, out.Expires = n.encodeCounter(c.Counter), c.Value, c.Gone, c.Expires
		return out, nil
	}
	props, err := graph.DecodeProps(c.Edge.Props)
	if err != nil {
		return nil, err
	}
	out.OldTime = c.OldTime
	e := &pb.Edge{Src: &pb.Vertex{Type: n.VertexTypeName(c.List.Vertex.Type), Id: c.List.Vertex.ID}, Time: c.Edge.Time, Properties: props}
	if def, ok := n.EdgeTypeByID(c.List.Type); ok {
		e.Type, e.Dst = def.Name, &pb.Vertex{Type: n.VertexTypeName(def.To), Id: c.Edge.Peer}
	}
	out.Edge = e
	return out, nil
}

func (n names) encodeCounter(c graph.CounterRef) *pb.CounterRef {
	if c.Key != "" {
		// The Redis-protocol port takes keys that are no text, and a message with one cannot be
		// sent: it would end every watch that comes to it.
		return &pb.CounterRef{Key: strings.ToValidUTF8(c.Key, "\uFFFD")}
	}
	out := &pb.CounterRef{Vertex: &pb.Vertex{Type: n.VertexTypeName(c.Vertex.Type), Id: c.Vertex.ID}}
	if def, ok := n.MetricByID(c.Vertex.Type, c.Metric); ok {
		out.Metric = def.Name
	}
	return out
}
