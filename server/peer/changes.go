package peer

import (
	"context"
	"time"

	"github.com/lianadb/liana/graph"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// maxChangeWait bounds how long a node waits for a change on behalf of another.
const maxChangeWait = 10 * time.Second

func (c *calls) ChangeRows(ctx context.Context, req *peerv1.ChangeRowsRequest) (*peerv1.ChangeRowsResponse, error) {
	wait := time.Duration(min(req.GetWait(), uint64(maxChangeWait/time.Microsecond))) * time.Microsecond
	rows, err := c.local.ChangeRows(ctx, graph.ChangesWant{Shard: req.GetShard(), Past: req.GetPast(), Wait: wait})
	if err != nil {
		return nil, StatusOf(err)
	}
	out := &peerv1.ChangeRowsResponse{
		Timeline: rows.Timeline, Owners: each(rows.Owners, wireClaim), Floor: rows.Floor, Through: rows.Through, Rows: rows.Rows,
	}
	if rows.Birth != nil {
		out.Birth = &peerv1.Birth{Parent: rows.Birth.Parent, Base: rows.Birth.Base}
	}
	return out, nil
}

// ChangeRows implements graph.Service.
func (c *Client) ChangeRows(ctx context.Context, want graph.ChangesWant) (graph.ChangeRows, error) {
	res, err := call(ctx, c, false, c.calls.ChangeRows, &peerv1.ChangeRowsRequest{
		Shard: want.Shard, Past: want.Past, Wait: uint64(want.Wait.Microseconds()),
	})
	if err != nil {
		return graph.ChangeRows{}, err
	}
	out := graph.ChangeRows{
		Timeline: res.GetTimeline(), Owners: each(res.GetOwners(), claim), Floor: res.GetFloor(), Through: res.GetThrough(), Rows: res.GetRows(),
	}
	if b := res.GetBirth(); b != nil {
		out.Birth = &graph.Birth{Parent: b.GetParent(), Base: b.GetBase()}
	}
	return out, nil
}
