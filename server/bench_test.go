package server

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// benchClient is a client of a server on a fake, on the same machine.
func benchClient(b *testing.B) pb.GraphClient {
	b.Helper()
	s, err := Listen(testConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	s.Attach(Attachment{Backend: newFake()})
	conn, err := grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		conn.Close()
		_ = s.Stop(context.Background())
	})
	<-s.Ready()
	return pb.NewGraphClient(conn)
}

// inParallel runs call b.N times by 64 callers.
func inParallel(b *testing.B, call func(i uint64) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	before := cpuTime(b)
	b.ResetTimer()
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := call(uint64(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
}

// cpuTime is what the process has used, client and server together: a figure
// that other load on the machine does not change much.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkAddEdge(b *testing.B) {
	c := benchClient(b)
	inParallel(b, func(i uint64) error {
		_, err := c.AddEdge(context.Background(), &pb.AddEdgeRequest{Edge: like(i, 1)})
		return err
	})
}

func BenchmarkHasEdges100(b *testing.B) {
	c := benchClient(b)
	dsts := make([]uint64, 100)
	for i := range dsts {
		dsts[i] = uint64(i + 1)
	}
	inParallel(b, func(i uint64) error {
		_, err := c.HasEdges(context.Background(), &pb.HasEdgesRequest{Type: "like", SrcIds: []uint64{i}, DstIds: dsts})
		return err
	})
}
