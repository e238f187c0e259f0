package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

func (d *daemon) schema() *pb.GetSchemaResponse {
	d.t.Helper()
	s, err := d.admin.GetSchema(testCtx(d.t), &pb.GetSchemaRequest{})
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// with is a schema with one more edge type.
func with(s *pb.GetSchemaResponse, name string, id int) string {
	return s.GetYaml() + fmt.Sprintf("    - {name: %s, id: %d, from: user, to: note}\n", name, id)
}

// tryType adds an edge of a type, and reports whether both ends have it.
func (d *daemon) tryType(name string, src, dst uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	e := like(src, dst)
	e.Type = name
	_, err := d.graph.AddEdge(ctx, &pb.AddEdgeRequest{Edge: e})
	return err
}

func (d *daemon) awaitType(name string) {
	d.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		failed := error(nil)
		for i := range uint64(20) { // over all shards, and from each to others
			if err := d.tryType(name, 700+i, i+1); err != nil {
				failed = err
			}
		}
		if failed == nil {
			return
		}
		if time.Now().After(end) {
			d.t.Fatalf("type %s: %v", name, failed)
		}
	}
}

// A schema is put into force through any node, reaches nodes that were down, and of two
// changes at once one wins and the other is told.
func TestASchemaReachesAllNodes(t *testing.T) {
	f := newTrio(t)
	f.node(0).add(1, 1)
	down := f.places[2].down()
	down.signal(syscall.SIGKILL)
	down.wait()

	first := f.node(0).schema()
	resp, err := f.node(1).admin.PutSchema(testCtx(t), &pb.PutSchemaRequest{Yaml: with(first, "bookmark", 77)})
	if err != nil || !resp.GetChanged() || resp.GetVersion() != first.GetVersion()+1 {
		t.Fatalf("%v, %v", resp, err)
	}
	f.node(0).awaitType("bookmark")
	resp, err = f.node(0).admin.PutSchema(testCtx(t), &pb.PutSchemaRequest{Yaml: with(first, "bookmark", 77)})
	if err != nil || resp.GetChanged() {
		t.Errorf("the same again: %v, %v", resp, err)
	}
	for _, bad := range []string{first.GetYaml(), strings.Replace(with(first, "bookmark", 77), "name: follow", "name: followed", 1)} {
		if _, err := f.node(0).admin.PutSchema(testCtx(t), &pb.PutSchemaRequest{Yaml: bad}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a type removed or renamed: %v", err)
		}
	}

	f.restart(2)
	f.node(2).awaitType("bookmark")
	if got := f.node(2).schema(); got.GetVersion() != first.GetVersion()+1 {
		t.Errorf("the node that was down has version %d", got.GetVersion())
	}

	// At once, under one number: one is in force on all nodes.
	second := f.node(0).schema()
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			resp, err := f.node(i%3).admin.PutSchema(testCtx(t), &pb.PutSchemaRequest{Yaml: with(second, fmt.Sprint("pick", i), 78)})
			switch {
			case err == nil && resp.GetChanged():
				won.Add(1)
			case status.Code(err) != codes.InvalidArgument:
				t.Errorf("change %d: %v, %v", i, resp, err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d changes won", won.Load())
	}
	eventuallyEqual(t, f)
}

func eventuallyEqual(t *testing.T, f *fleet) {
	t.Helper()
	var texts map[string]bool
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		texts = map[string]bool{}
		for i := range f.places {
			texts[f.node(i).schema().GetYaml()] = true
		}
		if len(texts) == 1 {
			return
		}
	}
	t.Errorf("the nodes have %d schemas", len(texts))
}
