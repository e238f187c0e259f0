package server

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// clientLimit is what a gRPC client takes in one message by default.
const clientLimit = 4 << 20

// longNames is a schema with the longest names that there can be.
func longNames(t *testing.T) *graph.Schema {
	t.Helper()
	name := func(c string) string { return strings.Repeat(c, 63) }
	s, err := graph.ParseSchema(fmt.Appendf(nil, `
vertices:
  - {name: %s, id: 1, metrics: [{name: %s, id: 1}]}
  - {name: %s, id: 2}
edges:
  - {name: %s, id: 1, from: %s, to: %s}
`, name("u"), name("m"), name("n"), name("l"), name("u"), name("n")))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// CASES 36: the largest pages that there can be pass a default client, whatever
// their edges are made of.
func TestTheLargestPagesPassADefaultClient(t *testing.T) {
	many := map[string]string{} // as many pairs as fit: the worst ratio on the wire
	for i := range 200 {
		many[fmt.Sprintf("%c%c", 'a'+i/26, 'a'+i%26)] = ""
	}
	for _, c := range []struct {
		name  string
		props map[string]string
		edges uint64
	}{
		{"no properties", nil, graph.MaxPageSize + 10},
		{"one large pair", map[string]string{"k": strings.Repeat("v", graph.MaxProps-8)}, 1300},
		{"many pairs", many, 1300},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, ctx := newRig(t, nil), testCtx(t)
			r.fake.schema = longNames(t)
			encoded, err := graph.EncodeProps(c.props)
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.edges {
				r.fake.mutate(graph.Mutation{Op: graph.OpAdd, Type: 1, Src: graph.MaxID, Dst: graph.MaxID - i, Time: 1 << 62, Props: encoded})
			}
			req := &pb.ListEdgesRequest{
				Vertex: &pb.Vertex{Type: strings.Repeat("u", 63), Id: graph.MaxID}, Type: strings.Repeat("l", 63), PageSize: graph.MaxPageSize,
			}
			seen, largest := map[uint64]bool{}, 0
			for {
				page, err := r.graph.ListEdges(ctx, req)
				if err != nil {
					t.Fatal(err)
				}
				largest = max(largest, proto.Size(page))
				for _, e := range page.Edges {
					seen[e.Dst.Id] = true
				}
				if page.NextPageToken == "" {
					break
				}
				req.PageToken = page.NextPageToken
			}
			if uint64(len(seen)) != c.edges {
				t.Errorf("%d edges", len(seen))
			}
			if largest > clientLimit {
				t.Errorf("a page of %d bytes", largest)
			}
			t.Logf("largest page: %d bytes", largest)
		})
	}
}

func TestThePageSizeIsClampedByLongNamesOnly(t *testing.T) {
	short, long := names{graph.DefaultSchema()}, names{longNames(t)}
	def, _ := short.EdgeType("like")
	if n, err := pageSize(graph.MaxPageSize, short.edgeOverhead(def)); err != nil || n != graph.MaxPageSize {
		t.Errorf("default schema: %d, %v", n, err)
	}
	if n, err := pageSize(0, short.edgeOverhead(def)); err != nil || n != graph.DefaultPageSize {
		t.Errorf("no size given: %d, %v", n, err)
	}
	longDef, _ := long.EdgeType(strings.Repeat("l", 63))
	n, err := pageSize(graph.MaxPageSize, long.edgeOverhead(longDef))
	if worst := n*long.edgeOverhead(longDef) + 3*graph.MaxPageBytes; err != nil || worst > clientLimit || n < 1000 {
		t.Errorf("longest names: %d edges, up to %d bytes, %v", n, worst, err)
	}
	edges, err := long.encodePage(&pb.Vertex{Type: strings.Repeat("u", 63), Id: graph.MaxID}, longDef, graph.Out,
		[]edgelist.Edge{{Peer: graph.MaxID, Time: -1}})
	if err != nil {
		t.Fatal(err)
	}
	one := proto.Size(&pb.ListEdgesResponse{Edges: edges})
	if over := long.edgeOverhead(longDef); over < one {
		t.Errorf("an edge takes %d bytes on the wire, counted with %d", one, over)
	}
}

func TestTheLargestAnswersOfBatchesPassADefaultClient(t *testing.T) {
	r, ctx := newRig(t, func(c *Config) { c.Limits.MaxMessageBytes = 16 << 20 }), testCtx(t)
	key := strings.Repeat("k", 500)
	refs := make([]*pb.CounterRef, graph.MaxBatch)
	incs := make([]*pb.Increment, graph.MaxBatch)
	for i := range refs {
		refs[i] = &pb.CounterRef{Key: key}
		incs[i] = &pb.Increment{Counter: refs[i], Delta: 1}
	}
	_, err := r.counters.BatchGet(ctx, &pb.BatchGetCountersRequest{Counters: refs})
	wantError(t, err, codes.InvalidArgument, "INVALID_FIELD", "counters")
	resp, err := r.counters.BatchGet(ctx, &pb.BatchGetCountersRequest{Counters: refs[:maxKeyBytes/len(key)]})
	if err != nil || proto.Size(resp) > clientLimit {
		t.Errorf("%d bytes, %v", proto.Size(resp), err)
	}
	worst := &pb.MutateEdgesResponse{}
	for i := range graph.MaxBatch {
		v := table(rules()).judge(invalid("f", "", "%s", strings.Repeat("x", 4096)))
		worst.Outcomes = append(worst.Outcomes, pb.Outcome_FAILED)
		worst.Errors = append(worst.Errors, &pb.MutationError{Index: uint32(i), Reason: "COMMAND_TOO_LARGE", Message: v.message})
	}
	if n := proto.Size(worst); n > clientLimit {
		t.Errorf("a batch whose every mutation failed takes %d bytes", n)
	}
	if _, err := r.counters.IncrByBatch(ctx, &pb.IncrByBatchRequest{Increments: incs}); err != nil {
		t.Errorf("increments: %v", err)
	}
}
