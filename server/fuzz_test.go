package server

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// door is the services without a network: a request goes in as bytes.
type door struct {
	calls *calls
	descs map[*grpc.ServiceDesc]any
}

func newDoor() *door {
	c := newCalls(testConfig(), slog.New(slog.DiscardHandler), newCallMetrics(prometheus.NewRegistry()))
	c.attached.Store(&Attachment{Backend: newFake()})
	return &door{calls: c, descs: map[*grpc.ServiceDesc]any{
		&pb.Graph_ServiceDesc: &graphService{calls: c}, &pb.Counters_ServiceDesc: &counterService{calls: c},
	}}
}

// send calls method with the request that fill makes, as a connection would.
func (d *door) send(desc *grpc.ServiceDesc, m grpc.MethodDesc, fill func(proto.Message) error) error {
	_, err := m.Handler(d.descs[desc], context.Background(), func(req any) error { return fill(req.(proto.Message)) }, d.calls.unary)
	return err
}

func checkAnswer(t *testing.T, method string, err error) {
	t.Helper()
	switch code := status.Code(err); code {
	case codes.OK, codes.InvalidArgument, codes.NotFound, codes.OutOfRange, codes.FailedPrecondition:
	default:
		t.Errorf("%s: %v", method, err)
	}
}

// FuzzRequests sends arbitrary bytes as requests of every method.
func FuzzRequests(f *testing.F) {
	for i, m := range []proto.Message{
		&pb.AddEdgeRequest{Edge: like(1, 2), Wait: 1},
		&pb.MutateEdgesRequest{Mutations: []*pb.Mutation{{Op: 1, Type: "like", SrcId: 1, DstId: 2, Properties: map[string]string{"k": "v"}}}},
		&pb.ListEdgesRequest{Vertex: user(1), Type: "like", PageSize: 3, PageToken: "x", Window: &pb.Window{}},
		&pb.CountEdgesBatchRequest{Vertices: []*pb.Vertex{user(1)}, Lists: []*pb.ListKind{{Type: "like"}}},
		&pb.IncrByRequest{Increment: &pb.Increment{Counter: &pb.CounterRef{Key: "k"}, Delta: 1, Max: new(int64)}},
		&pb.GetCounterRequest{Counter: &pb.CounterRef{Vertex: note(1)}, Metrics: []string{"views"}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), b)
	}
	d := newDoor()
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		for desc := range d.descs {
			m := desc.Methods[int(which)%len(desc.Methods)]
			err := d.send(desc, m, func(req proto.Message) error {
				if err := proto.Unmarshal(b, req); err != nil {
					return status.Error(codes.InvalidArgument, "no such message")
				}
				return nil
			})
			checkAnswer(t, m.MethodName, err)
		}
	})
}

// Requests that are well formed and wrong in every field at random: the fuzzer
// seldom gets past the names.
func TestRandomRequestsAreAnsweredOrRefusedClearly(t *testing.T) {
	d := newDoor()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		for desc := range d.descs {
			m := desc.Methods[r.IntN(len(desc.Methods))]
			err := d.send(desc, m, func(req proto.Message) error {
				randomMessage(r, req.ProtoReflect(), 0)
				return nil
			})
			checkAnswer(t, m.MethodName, err)
		}
	}
}

func randomMessage(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if r.IntN(4) == 0 {
			continue
		}
		switch {
		case f.IsMap():
			for range r.IntN(3) {
				m.Mutable(f).Map().Set(randomScalar(r, f.MapKey()).MapKey(), randomScalar(r, f.MapValue()))
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range r.IntN(4) {
				v := list.NewElement()
				if f.Message() == nil {
					v = randomScalar(r, f)
				} else if depth < 5 {
					randomMessage(r, v.Message(), depth+1)
				}
				list.Append(v)
			}
		case f.Message() != nil:
			if depth < 5 {
				randomMessage(r, m.Mutable(f).Message(), depth+1)
			}
		default:
			m.Set(f, randomScalar(r, f))
		}
	}
}

func randomScalar(r *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	texts := []string{"", "user", "note", "user", "note", "like", "like", "follow", "views", "k", "bad", "é", "\x00"}
	ints := []int64{0, 1, 2, -1, 1000, math.MaxInt64, math.MinInt64, graph.MaxPageSize + 1}
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(texts[r.IntN(len(texts))])
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(ints[r.IntN(len(ints))])
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(ints[r.IntN(len(ints))]))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(8) - 1))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	}
	return protoreflect.ValueOfUint64(uint64(ints[r.IntN(len(ints))]))
}
