package peer

import (
	"context"

	peerv1 "github.com/lianadb/liana/proto/peer/v1"
)

// Copies is what operators ask of the caches of one node. A node without caches has none.
type Copies interface {
	HotKeys(ctx context.Context, req *peerv1.HotKeysRequest) (*peerv1.HotKeysResponse, error)
	Figures(ctx context.Context, req *peerv1.FiguresRequest) (*peerv1.FiguresResponse, error)
	DropCopies(ctx context.Context, req *peerv1.DropCopiesRequest) (*peerv1.DropCopiesResponse, error)
}

var _ Copies = (*Client)(nil)

func (c *cacheCalls) HotKeys(ctx context.Context, req *peerv1.HotKeysRequest) (*peerv1.HotKeysResponse, error) {
	return answerOf(c.copies == nil, func() (*peerv1.HotKeysResponse, error) { return c.copies.HotKeys(ctx, req) })
}

func (c *cacheCalls) Figures(ctx context.Context, req *peerv1.FiguresRequest) (*peerv1.FiguresResponse, error) {
	return answerOf(c.copies == nil, func() (*peerv1.FiguresResponse, error) { return c.copies.Figures(ctx, req) })
}

func (c *cacheCalls) DropCopies(ctx context.Context, req *peerv1.DropCopiesRequest) (*peerv1.DropCopiesResponse, error) {
	return answerOf(c.copies == nil, func() (*peerv1.DropCopiesResponse, error) { return c.copies.DropCopies(ctx, req) })
}

// answerOf is the answer of the node's caches, the empty one where there are none.
func answerOf[R any](none bool, ask func() (*R, error)) (*R, error) {
	if none {
		return new(R), nil
	}
	r, err := ask()
	return r, StatusOf(err)
}

// HotKeys implements Copies.
func (c *Client) HotKeys(ctx context.Context, req *peerv1.HotKeysRequest) (*peerv1.HotKeysResponse, error) {
	return call(ctx, c, false, c.cache.HotKeys, req)
}

// Figures implements Copies.
func (c *Client) Figures(ctx context.Context, req *peerv1.FiguresRequest) (*peerv1.FiguresResponse, error) {
	return call(ctx, c, false, c.cache.Figures, req)
}

// DropCopies implements Copies.
func (c *Client) DropCopies(ctx context.Context, req *peerv1.DropCopiesRequest) (*peerv1.DropCopiesResponse, error) {
	return call(ctx, c, false, c.cache.DropCopies, req)
}
