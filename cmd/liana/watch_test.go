package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// changeFake tells three changes, one by one, cut after the first as by a server that stops.
type changeFake struct {
	lianav1.UnimplementedChangesServer
	asked []*lianav1.WatchRequest
}

func (f *changeFake) Watch(r *lianav1.WatchRequest, s grpc.ServerStreamingServer[lianav1.WatchResponse]) error {
	f.asked = append(f.asked, r)
	at := len(r.ResumeToken) // one more letter a change
	if err := s.Send(&lianav1.WatchResponse{ResumeToken: r.ResumeToken + strings.Repeat("x", 1-min(at, 1))}); err != nil {
		return err
	}
	for at = max(at, 1); at < 4; at++ {
		e := &lianav1.Edge{Src: &lianav1.Vertex{Type: "user", Id: uint64(at)}, Type: "like", Dst: &lianav1.Vertex{Type: "note", Id: 7}, Time: 5}
		c := &lianav1.Change{Kind: lianav1.ChangeKind_EDGE_ADDED, Edge: e, Position: uint64(at)}
		if err := s.Send(&lianav1.WatchResponse{Changes: []*lianav1.Change{c}, ResumeToken: strings.Repeat("x", at+1)}); err != nil {
			return err
		}
		if at == 1 {
			return status.Error(codes.Unavailable, "the server is stopping")
		}
	}
	return s.Send(&lianav1.WatchResponse{ResumeToken: "xxxx"})
}

func TestWatchPrintsLinesAndGoesOn(t *testing.T) {
	fake, changes := &fakeServer{edges: map[edgeKey]*lianav1.Edge{}, pageCap: maxPageSize, last: map[string]any{}}, new(changeFake)
	fake.changes = changes
	fake.put("like", 90, 7, 1, nil)
	fake.put("like", 91, 8, 1, nil)
	addr := fake.serve(t)
	file := filepath.Join(t.TempDir(), "token")
	out := must(t, "watch", "--snapshot", "--until-idle", "--resume-file", file, "--vertex", "note:7", "-o", "json", "--addr", addr)
	var users []string
	for line := range strings.Lines(out) {
		var c struct {
			Edge struct{ Src struct{ ID string } }
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		users = append(users, c.Edge.Src.ID)
	}
	if got := strings.Join(users, " "); got != "90 1 2 3" {
		t.Errorf("printed %s:\n%s", got, out)
	}
	if token, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(token)) != "xxxx" {
		t.Errorf("the file has %q, %v", token, err)
	}
	n := len(changes.asked)
	if last := changes.asked[n-1]; n != 3 || last.ResumeToken != "xx" || last.Vertex.GetId() != 7 {
		t.Errorf("%d requests, the last %v", n, last)
	}
	if out := must(t, "watch", "--snapshot", "--until-idle", "--resume-file", file, "-o", "json", "--addr", addr); out != "" {
		t.Errorf("printed again: %s", out)
	}
	liana("watch", "--kind", "x").expect(t, exitUsage, "--help")
	liana("watch", "--vertex", "7").expect(t, exitUsage, "--help")
}
