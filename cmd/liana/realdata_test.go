package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// ratingsFile is the real stream, where it can be found: MovieTweetings 100k (MIT), lines of
// user::item::rating::unix seconds. It is not part of the repository.
func ratingsFile() string {
	for _, path := range []string{
		os.Getenv("LIANA_RATINGS"),
		filepath.Join("..", "..", "..", "shared", "data", "movietweetings-100k", "ratings.dat"),
	} {
		if _, err := os.Stat(path); path != "" && err == nil {
			return path
		}
	}
	return ""
}

// TestRealStreamAgreesWithItsFile imports the real stream and compares every count, list
// and order, of every vertex and in both directions, with what the file says.
func TestRealStreamAgreesWithItsFile(t *testing.T) {
	file := ratingsFile()
	if file == "" {
		t.Skip("no ratings.dat: set LIANA_RATINGS to the file of MovieTweetings 100k. TestGeneratedStreamAgreesWithItsFile does the same with a stream of that shape.")
	}
	vertices := agrees(t, file)
	if vertices != 27_060 {
		t.Errorf("%d vertices compared, the file has 27,060", vertices)
	}
}

// TestGeneratedStreamAgreesWithItsFile is the same with the demo's stream, which has the
// shape of the real one.
func TestGeneratedStreamAgreesWithItsFile(t *testing.T) {
	var b strings.Builder
	for _, l := range demoStream(11, demoLikes) {
		fmt.Fprintf(&b, "%07d::%d::7::%d\n", l.user, l.note, l.time/1e6)
	}
	file := filepath.Join(t.TempDir(), "ratings.dat")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	agrees(t, file)
}

// entry is one edge of a list as the file has it.
type entry struct {
	peer uint64
	time int64
}

// lists are the lists of all vertices of one type, newest first.
type lists map[uint64][]entry

// readRatings computes all lists from the file alone.
func readRatings(t *testing.T, file string) (out, in lists) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, in = lists{}, lists{}
	for line := range bytes.Lines(text) {
		f := strings.Split(strings.TrimSpace(string(line)), "::")
		var n [4]uint64
		for i := range n {
			if n[i], err = strconv.ParseUint(f[i], 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		out[n[0]] = append(out[n[0]], entry{n[1], int64(n[3]) * 1e6})
		in[n[1]] = append(in[n[1]], entry{n[0], int64(n[3]) * 1e6})
	}
	for _, all := range []lists{out, in} {
		for _, l := range all {
			slices.SortFunc(l, func(a, b entry) int {
				return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(b.peer, a.peer))
			})
		}
	}
	return out, in
}

// agrees imports a file into a new server, by the command line, and compares all of it.
func agrees(t *testing.T, file string) (vertices int) {
	t.Helper()
	s := startReal(t)
	r := liana(append([]string{"-o", "json"}, importArgs(s.addr, file, "--columns", "src,dst,-,time_s", "--delimiter", "::",
		"--progress-file", filepath.Join(t.TempDir(), "progress"))...)...)
	r.expect(t, 0)
	var c counts
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil {
		t.Fatal(err)
	}
	if c.Read != 100_000 || c.Created != 100_000 {
		t.Fatalf("imported %+v", c)
	}
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	out, in := readRatings(t, file)
	g := lianav1.NewGraphClient(conn)
	compareLists(t, g, "user", lianav1.Direction_OUT, out)
	compareLists(t, g, "note", lianav1.Direction_IN, in)
	if text := s.do("check"); !strings.Contains(text, "clean") {
		t.Errorf("check: %s", text)
	}
	return len(out) + len(in)
}

func compareLists(t *testing.T, g lianav1.GraphClient, vertexType string, d lianav1.Direction, want lists) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(8)
	ids := slices.Sorted(maps.Keys(want))
	for part := range slices.Chunk(ids, 1000) {
		// Counts of all time, and of the time before some like of the part.
		middle := want[part[len(part)/2]][0].time
		work.Go(func() error { return compareCounts(ctx, g, vertexType, d, part, want, math.MaxInt64) })
		work.Go(func() error { return compareCounts(ctx, g, vertexType, d, part, want, middle) })
		work.Go(func() error {
			for _, id := range part {
				if err := compareList(ctx, g, &lianav1.Vertex{Type: vertexType, Id: id}, d, want[id]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
}

// compareCounts compares the counts of edges before a time.
func compareCounts(ctx context.Context, g lianav1.GraphClient, vertexType string, d lianav1.Direction, ids []uint64, want lists, until int64) error {
	req := &lianav1.CountEdgesBatchRequest{Lists: []*lianav1.ListKind{{Type: "like", Direction: d}}}
	if until != math.MaxInt64 {
		req.Window = &lianav1.Window{Until: &until}
	}
	for _, id := range ids {
		req.Vertices = append(req.Vertices, &lianav1.Vertex{Type: vertexType, Id: id})
	}
	answer, err := g.CountEdgesBatch(ctx, req)
	if err != nil {
		return err
	}
	for i, id := range ids {
		n := uint64(0)
		for _, e := range want[id] {
			if e.time < until {
				n++
			}
		}
		if answer.Counts[i] != n {
			return fmt.Errorf("%s:%d: count %d before %d, the file has %d", vertexType, id, answer.Counts[i], until, n)
		}
	}
	return nil
}

// compareList compares a whole listing.
func compareList(ctx context.Context, g lianav1.GraphClient, v *lianav1.Vertex, d lianav1.Direction, want []entry) error {
	req := &lianav1.ListEdgesRequest{Vertex: v, Type: "like", Direction: d, PageSize: 500}
	at := 0
	for {
		page, err := g.ListEdges(ctx, req)
		if err != nil {
			return err
		}
		for _, e := range page.Edges {
			peer := e.Dst
			if d == lianav1.Direction_IN {
				peer = e.Src
			}
			if at >= len(want) || peer.Id != want[at].peer || e.Time != want[at].time {
				return fmt.Errorf("%v: place %d is %d at %d, which is not what the file has", v, at, peer.Id, e.Time)
			}
			at++
		}
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			break
		}
	}
	if at != len(want) {
		return fmt.Errorf("%v: %d edges listed, the file has %d", v, at, len(want))
	}
	return nil
}

// The directory of a server is checked offline once the server is gone, and damage is told
// from an absent directory.
func TestCheckOfADataDirectory(t *testing.T) {
	s := startReal(t)
	s.do("edge add user:1 like note:1")
	s.do("edge add user:2 like note:1 --wait forward")
	offline := func(dir string) result {
		return lianaWith(surroundings{checkOffline: checkDirectoryOffline}, "check", "--data-dir", dir)
	}
	offline(s.dir).expect(t, exitNotChecked, "another process")
	s.kill()
	if r := offline(s.dir); r.code != 0 || !strings.Contains(r.stdout, "clean") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	offline(filepath.Join(s.dir, "nothing")).expect(t, exitNotChecked)
	s.start()
	s.do("check")
}
