package server

import (
	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// The enums of requests. A number that the API does not name is an error: a newer
// client meant something that this server does not know.

func decodeWait(w pb.Wait) (graph.Wait, error) {
	switch w {
	case pb.Wait_WAIT_UNSPECIFIED, pb.Wait_BOTH:
		return graph.WaitBoth, nil
	case pb.Wait_FORWARD:
		return graph.WaitForward, nil
	}
	return 0, invalid("wait", "BOTH, FORWARD", "unknown number %d", w)
}

func decodeDirection(field string, d pb.Direction) (graph.Direction, error) {
	switch d {
	case pb.Direction_DIRECTION_UNSPECIFIED, pb.Direction_OUT:
		return graph.Out, nil
	case pb.Direction_IN:
		return graph.In, nil
	}
	return 0, invalid(field, "OUT, IN", "unknown number %d", d)
}

func decodeOrder(o pb.Order) (graph.Order, error) {
	switch o {
	case pb.Order_ORDER_UNSPECIFIED, pb.Order_NEWEST_FIRST:
		return graph.NewestFirst, nil
	case pb.Order_OLDEST_FIRST:
		return graph.OldestFirst, nil
	case pb.Order_ID_ASCENDING:
		return graph.IDAscending, nil
	case pb.Order_ID_DESCENDING:
		return graph.IDDescending, nil
	}
	return 0, invalid("order", "NEWEST_FIRST, OLDEST_FIRST, ID_ASCENDING, ID_DESCENDING", "unknown number %d", o)
}

func decodeOp(field string, op pb.MutationOp) (graph.Op, error) {
	switch op {
	case pb.MutationOp_ADD:
		return graph.OpAdd, nil
	case pb.MutationOp_DELETE:
		return graph.OpDelete, nil
	case pb.MutationOp_UPDATE:
		return graph.OpUpdate, nil
	}
	return 0, invalid(field, "ADD, DELETE, UPDATE", "number %d", op)
}

func decodeConsistency(c *pb.Consistency) (graph.ReadOptions, error) {
	opts := graph.ReadOptions{Token: c.GetToken()}
	switch c.GetLevel() {
	case pb.ReadLevel_READ_LEVEL_UNSPECIFIED:
		if opts.Token != "" {
			opts.Level = graph.AtLeastAsFresh
		}
	case pb.ReadLevel_MINIMIZE_LATENCY:
	case pb.ReadLevel_AT_LEAST_AS_FRESH:
		if opts.Token == "" {
			return opts, invalid("consistency.token", "a token of an earlier answer", "AT_LEAST_AS_FRESH needs one")
		}
		opts.Level = graph.AtLeastAsFresh
	case pb.ReadLevel_LINEARIZABLE:
		opts.Level = graph.Linearizable
	default:
		return opts, invalid("consistency.level", "MINIMIZE_LATENCY, AT_LEAST_AS_FRESH, LINEARIZABLE",
			"unknown number %d", c.GetLevel())
	}
	return opts, nil
}

func decodeWindow(w *pb.Window) graph.Window {
	all := graph.AllTime()
	if w == nil {
		return all
	}
	if w.Since != nil {
		all.Since = *w.Since
	}
	if w.Until != nil {
		all.Until = *w.Until
	}
	return all
}

func encodeOutcome(o graph.Outcome) pb.Outcome {
	switch o {
	case graph.Changed:
		return pb.Outcome_CHANGED
	case graph.Unchanged, graph.Missing:
		return pb.Outcome_UNCHANGED
	case graph.InversePending:
		return pb.Outcome_INVERSE_PENDING
	case graph.Unknown:
		return pb.Outcome_OUTCOME_UNKNOWN
	}
	return pb.Outcome_FAILED
}
