// Command go is a client of Liana from end to end: likes, counts, pages, tokens,
// counters and retries. docs/clients.md walks through it.
//
//	go run ./docs/examples/go [ADDR]
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

func main() {
	addr := "127.0.0.1:7400"
	if len(os.Args) > 1 {
		addr = os.Args[1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx, addr); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := edges(ctx, lianav1.NewGraphClient(conn)); err != nil {
		return fmt.Errorf("edges: %w", err)
	}
	if err := counters(ctx, lianav1.NewCountersClient(conn)); err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	return nil
}

func user(id uint64) *lianav1.Vertex { return &lianav1.Vertex{Type: "user", Id: id} }
func note(id uint64) *lianav1.Vertex { return &lianav1.Vertex{Type: "note", Id: id} }

// edges likes a note and reads it back.
func edges(ctx context.Context, g lianav1.GraphClient) error {
	var token string // what the last write has seen
	for id := range uint64(5) {
		err := retry(ctx, func() error {
			added, err := g.AddEdge(ctx, &lianav1.AddEdgeRequest{
				Edge: &lianav1.Edge{Src: user(101 + id), Type: "like", Dst: note(9)},
			})
			token = added.GetToken()
			return err
		})
		if err != nil {
			return err
		}
	}
	// With the token a read is at least as fresh as the write, at any node.
	sees := &lianav1.Consistency{Token: token}

	has, err := g.HasEdges(ctx, &lianav1.HasEdgesRequest{Type: "like", SrcIds: []uint64{105}, DstIds: []uint64{9, 10}, Consistency: sees})
	if err != nil {
		return err
	}
	fmt.Println("user 105 likes notes 9 and 10:", has.GetExists())

	count, err := g.CountEdges(ctx, &lianav1.CountEdgesRequest{Vertex: note(9), Type: "like", Direction: lianav1.Direction_IN, Consistency: sees})
	if err != nil {
		return err
	}
	fmt.Println("likes of note 9:", count.GetCount())
	return pages(ctx, g, sees)
}

// pages reads a list to its end, oldest first.
func pages(ctx context.Context, g lianav1.GraphClient, sees *lianav1.Consistency) error {
	req := &lianav1.ListEdgesRequest{
		Vertex: note(9), Type: "like", Direction: lianav1.Direction_IN, Order: lianav1.Order_OLDEST_FIRST, PageSize: 2, Consistency: sees,
	}
	for {
		page, err := g.ListEdges(ctx, req)
		if err != nil {
			return err
		}
		var ids []uint64
		for _, e := range page.GetEdges() {
			ids = append(ids, e.GetSrc().GetId())
		}
		fmt.Println("page of users:", ids)
		if page.GetNextPageToken() == "" {
			return nil
		}
		req.PageToken = page.GetNextPageToken()
	}
}

// counters adds with a request id, so that a repeated call counts once.
func counters(ctx context.Context, c lianav1.CountersClient) error {
	id := fmt.Sprintf("view-%x", rand.Uint64())
	req := &lianav1.IncrByRequest{
		Increment: &lianav1.Increment{Counter: &lianav1.CounterRef{Key: "example:" + id}, Delta: 3}, RequestId: id,
	}
	for range 2 { // the second time is what a retry would do
		err := retry(ctx, func() error {
			sum, err := c.IncrBy(ctx, req)
			if err == nil {
				fmt.Println("counter:", sum.GetValue())
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// retry repeats a call that may be repeated: edge writes, reads, and increments with a
// request id. It gives up with the context.
func retry(ctx context.Context, call func() error) error {
	for {
		err := call()
		wait, again := repeats(err)
		if !again {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(wait + rand.N(wait)): // clients that failed together come back apart
		}
	}
}

// repeats reports whether the same call may succeed later, and after what time.
func repeats(err error) (wait time.Duration, again bool) {
	wait = 50 * time.Millisecond
	st := status.Convert(err)
	switch st.Code() {
	case codes.OK:
		return 0, false
	case codes.Unknown, codes.Aborted: // the outcome is unknown, or half of it is to come
		again = true
	case codes.Unavailable: // also without details: the connection is gone
		again = true
	}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			again = again || d.GetMetadata()["retryable"] == "true"
		case *errdetails.RetryInfo:
			wait = d.GetRetryDelay().AsDuration()
		}
	}
	return wait, again
}
