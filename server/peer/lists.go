package peer

import (
	"context"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

func (c *calls) ReadLists(ctx context.Context, req *peerv1.ReadListsRequest) (*peerv1.ReadListsResponse, error) {
	runs := make([]graph.ListRun, len(req.GetReads()))
	token, err := c.local.ReadLists(ctx, readOptions(req.GetOptions()), each(req.GetReads(), listRead), runs)
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.ReadListsResponse{Runs: each(runs, wireListRun), Token: token}, nil
}

func (c *calls) FindPeers(ctx context.Context, req *peerv1.FindPeersRequest) (*peerv1.FindPeersResponse, error) {
	found := make([]graph.FoundPeers, len(req.GetLists()))
	token, err := c.local.FindPeers(ctx, readOptions(req.GetOptions()), each(req.GetLists(), listKey), req.GetPeers(), found)
	if err != nil {
		return nil, StatusOf(err)
	}
	return &peerv1.FindPeersResponse{Found: each(found, wireFoundPeers), Token: token}, nil
}

// ReadLists implements graph.Service.
func (c *Client) ReadLists(ctx context.Context, ro graph.ReadOptions, reads []graph.ListRead, runs []graph.ListRun) (string, error) {
	res, err := call(ctx, c, false, c.calls.ReadLists, &peerv1.ReadListsRequest{Options: wireReadOptions(ro), Reads: each(reads, wireListRead)})
	if err != nil {
		return "", err
	}
	if err := c.sized(len(res.GetRuns()), len(reads)); err != nil {
		return "", err
	}
	for i, r := range res.GetRuns() {
		if err := c.sized(len(r.GetTimes()), len(r.GetPeers())); err != nil {
			return "", err
		}
		runs[i] = graph.ListRun{Peers: r.GetPeers(), Times: sums(r.GetTimes()), More: r.GetMore(), Done: r.GetDone()}
	}
	return res.GetToken(), nil
}

// FindPeers implements graph.Service.
func (c *Client) FindPeers(ctx context.Context, ro graph.ReadOptions, lists []graph.ListKey, peers []uint64, found []graph.FoundPeers) (string, error) {
	res, err := call(ctx, c, false, c.calls.FindPeers, &peerv1.FindPeersRequest{
		Options: wireReadOptions(ro), Lists: each(lists, wireListKey), Peers: peers,
	})
	if err != nil {
		return "", err
	}
	if err := c.sized(len(res.GetFound()), len(lists)); err != nil {
		return "", err
	}
	for i, f := range res.GetFound() {
		at := sums(f.GetAt())
		if err := c.sized(len(f.GetTimes()), len(at)); err != nil {
			return "", err
		}
		for _, k := range at {
			if int(k) >= len(peers) {
				return "", c.sized(int(k)+1, len(peers))
			}
		}
		found[i] = graph.FoundPeers{At: at, Times: sums(f.GetTimes())}
	}
	return res.GetToken(), nil
}

func listRead(r *peerv1.ListRead) graph.ListRead {
	out := graph.ListRead{List: listKey(r.GetList()), Order: graph.Order(r.GetOrder()), Window: graph.AllTime(), Limit: int(r.GetLimit())}
	if w := r.GetWindow(); w != nil {
		out.Window = window(w)
	}
	if k := r.GetFrom(); k != nil {
		out.From = &edgelist.Key{Time: k.GetTime(), ID: k.GetId()}
	}
	return out
}

func wireListRead(r graph.ListRead) *peerv1.ListRead {
	out := &peerv1.ListRead{List: wireListKey(r.List), Order: uint32(r.Order), Limit: uint32(r.Limit)}
	if !r.Window.IsAll() {
		out.Window = wireWindow(r.Window)
	}
	if r.From != nil {
		out.From = &peerv1.Key{Time: r.From.Time, Id: r.From.ID}
	}
	return out
}

func wireListRun(r graph.ListRun) *peerv1.ListRun {
	return &peerv1.ListRun{Peers: r.Peers, Times: differences(r.Times), More: r.More, Done: r.Done}
}

func wireFoundPeers(f graph.FoundPeers) *peerv1.FoundPeers {
	return &peerv1.FoundPeers{At: differences(f.At), Times: differences(f.Times)}
}

// differences replaces each number but the first by its difference to the one before;
// sums undoes that. Both change what they are given.
func differences[N int64 | uint32](in []N) []N {
	for i := len(in) - 1; i > 0; i-- {
		in[i] -= in[i-1]
	}
	return in
}

func sums[N int64 | uint32](in []N) []N {
	for i := 1; i < len(in); i++ {
		in[i] += in[i-1]
	}
	return in
}
