package peer

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/lianadb/liana/graph"
)

// meantKey is the metadata by which a call names the node that it is meant for, as a
// Raft stream does in its hello: a node whose data was lost comes back under its address,
// and not as itself. A caller that does not know the node yet leaves it out.
const meantKey = "liana-node"

// meant makes all calls of a connection name the node.
func meant(node string) []grpc.DialOption {
	name := func(ctx context.Context) context.Context {
		return metadata.AppendToOutgoingContext(ctx, meantKey, node)
	}
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(name(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return stream(name(ctx), desc, cc, method, opts...)
		}),
	}
}

// asked refuses calls that are meant for another node than this one.
func asked(node string) []grpc.ServerOption {
	check := func(ctx context.Context) error {
		for _, other := range metadata.ValueFromIncomingContext(ctx, meantKey) {
			if other != node {
				return StatusOf(fmt.Errorf("%w: its address is that of node %s", graph.ErrUnreachable, node))
			}
		}
		return nil
	}
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := check(ctx); err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := check(stream.Context()); err != nil {
				return err
			}
			return handle(srv, stream)
		}),
	}
}
