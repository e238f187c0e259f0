package peer

import (
	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/counter"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// each turns every item of a slice into another form.
func each[A, B any](in []A, f func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = f(in[i])
	}
	return out
}

func readOptions(o *peerv1.ReadOptions) graph.ReadOptions {
	return graph.ReadOptions{Level: graph.ReadLevel(o.GetLevel()), Token: o.GetToken()}
}

func wireReadOptions(o graph.ReadOptions) *peerv1.ReadOptions {
	return &peerv1.ReadOptions{Level: uint32(o.Level), Token: o.Token}
}

func mutation(m *peerv1.Mutation) graph.Mutation {
	return graph.Mutation{
		Op: graph.Op(m.GetOp()), Type: graph.EdgeType(m.GetType()), Src: m.GetSrc(), Dst: m.GetDst(),
		Time: m.GetTime(), Props: m.GetProperties(),
	}
}

func wireMutation(m graph.Mutation) *peerv1.Mutation {
	return &peerv1.Mutation{
		Op: uint32(m.Op), Type: uint32(m.Type), Src: m.Src, Dst: m.Dst, Time: m.Time, Properties: m.Props,
	}
}

func wireMutationResult(r graph.MutationResult) *peerv1.MutationResult {
	return &peerv1.MutationResult{Outcome: uint32(r.Outcome), Changed: r.Changed, Error: encodeError(r.Err)}
}

func edge(e *peerv1.Edge) edgelist.Edge {
	return edgelist.Edge{Peer: e.GetPeer(), Time: e.GetTime(), Props: e.GetProperties()}
}

func wireEdge(e edgelist.Edge) *peerv1.Edge {
	return &peerv1.Edge{Peer: e.Peer, Time: e.Time, Properties: e.Props}
}

func listKey(l *peerv1.List) graph.ListKey {
	return graph.ListKey{
		Vertex: graph.Vertex{Type: graph.VertexType(l.GetVertexType()), ID: l.GetVertexId()},
		Type:   graph.EdgeType(l.GetType()), Dir: graph.Direction(l.GetDirection()),
	}
}

func wireListKey(l graph.ListKey) *peerv1.List {
	return &peerv1.List{
		VertexType: uint32(l.Vertex.Type), VertexId: l.Vertex.ID, Type: uint32(l.Type), Direction: uint32(l.Dir),
	}
}

func window(w *peerv1.Window) graph.Window {
	return graph.Window{Since: w.GetSince(), Until: w.GetUntil()}
}

func wireWindow(w graph.Window) *peerv1.Window {
	return &peerv1.Window{Since: w.Since, Until: w.Until}
}

func counterRef(c *peerv1.Counter) graph.CounterRef {
	return graph.CounterRef{
		Vertex: graph.Vertex{Type: graph.VertexType(c.GetVertexType()), ID: c.GetVertexId()},
		Metric: graph.Metric(c.GetMetric()), Key: string(c.GetKey()),
	}
}

func wireCounterRef(c graph.CounterRef) *peerv1.Counter {
	return &peerv1.Counter{
		VertexType: uint32(c.Vertex.Type), VertexId: c.Vertex.ID, Metric: uint32(c.Metric), Key: []byte(c.Key),
	}
}

func increment(in *peerv1.Increment) graph.Increment {
	return graph.Increment{
		Counter: counterRef(in.GetCounter()), Delta: in.GetDelta(),
		Min: in.GetMin(), HasMin: in.Min != nil, Max: in.GetMax(), HasMax: in.Max != nil,
		ExpireAt: in.GetExpireAt(),
	}
}

func wireIncrement(in graph.Increment, ordinal uint32) *peerv1.Increment {
	out := &peerv1.Increment{
		Counter: wireCounterRef(in.Counter), Delta: in.Delta, ExpireAt: in.ExpireAt, Ordinal: ordinal,
	}
	if in.HasMin {
		out.Min = &in.Min
	}
	if in.HasMax {
		out.Max = &in.Max
	}
	return out
}

func wireIncrResult(r graph.IncrResult) *peerv1.IncrementResult {
	return &peerv1.IncrementResult{Value: r.Value, Changed: r.Changed, Error: encodeError(r.Err)}
}

func counterValue(v *peerv1.CounterValue) counter.Counter {
	return counter.Counter{Value: v.GetValue(), Exists: v.GetExists(), ExpireAt: v.GetExpireAt()}
}

func counterEdit(e *peerv1.CounterEdit) graph.CounterEdit {
	return graph.CounterEdit{
		Counter: counterRef(e.GetCounter()), Kind: counter.EditKind(e.GetKind()), If: counter.Condition(e.GetConditions()),
		Value: e.GetValue(), ExpireAt: e.GetExpireAt(), Keep: e.GetKeep(),
	}
}

func wireCounterEdit(e graph.CounterEdit) *peerv1.CounterEdit {
	return &peerv1.CounterEdit{
		Counter: wireCounterRef(e.Counter), Kind: uint32(e.Kind), Conditions: uint32(e.If),
		Value: e.Value, ExpireAt: e.ExpireAt, Keep: e.Keep,
	}
}

func wireEditResult(r graph.EditResult) *peerv1.EditResult {
	return &peerv1.EditResult{
		Before: &peerv1.CounterValue{Value: r.Before.Value, Exists: r.Before.Exists, ExpireAt: r.Before.ExpireAt},
		Value:  r.Value, Outcome: uint32(r.Outcome), Changed: r.Changed, Position: r.Pos, Error: encodeError(r.Err),
	}
}
