package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// The doors to the server mean the same. Each of these is one of them for one caller, and
// is given the token of what it must see.

var errOverflow = errors.New("past 64 bits")

// counterDoor counts. It is gRPC, JSON or RESP.
type counterDoor interface {
	incr(ref counterName, delta int64) (sum int64, token string, err error)
	get(ref counterName, token string) (value int64, exists bool, err error)
	remove(ref counterName) (changed bool, token string, err error)
}

// edgeDoor likes. It is gRPC or JSON.
type edgeDoor interface {
	like(e *pb.Edge) (changed bool, token string, err error)
	unlike(e *pb.Edge) (changed bool, token string, err error)
	likes(e *pb.Edge, token string) (bool, error)
	count(note uint64, token string) (uint64, error)
	list(note uint64, token string) ([]*pb.Edge, error)
}

// counterName is a key, or a metric of a note.
type counterName struct {
	key    string
	note   uint64
	metric string
}

func (n counterName) String() string {
	if n.key != "" {
		return n.key
	}
	return fmt.Sprintf("note:%d %s", n.note, n.metric)
}

func (n counterName) ref() *pb.CounterRef {
	if n.key != "" {
		return &pb.CounterRef{Key: n.key}
	}
	return &pb.CounterRef{Vertex: &pb.Vertex{Type: "note", Id: n.note}, Metric: n.metric}
}

// at is a read that sees a token; without one, all that was acknowledged.
func at(token string) *pb.Consistency {
	if token == "" {
		return &pb.Consistency{Level: pb.ReadLevel_LINEARIZABLE}
	}
	return &pb.Consistency{Token: token}
}

// overflowOr tells a sum past 64 bits from other errors.
func overflowOr(err error) error {
	if status.Code(err) == codes.OutOfRange {
		return errOverflow
	}
	return err
}

// grpcDoor is both doors over gRPC.
type grpcDoor struct {
	t *testing.T
	d *daemon
}

func (g grpcDoor) incr(ref counterName, delta int64) (int64, string, error) {
	resp, err := g.d.counters.IncrBy(testCtx(g.t), &pb.IncrByRequest{Increment: &pb.Increment{Counter: ref.ref(), Delta: delta}})
	return resp.GetValue(), resp.GetToken(), overflowOr(err)
}

func (g grpcDoor) get(ref counterName, token string) (int64, bool, error) {
	resp, err := g.d.counters.BatchGet(testCtx(g.t), &pb.BatchGetCountersRequest{Counters: []*pb.CounterRef{ref.ref()}, Consistency: at(token)})
	if err != nil {
		return 0, false, err
	}
	return resp.GetCounters()[0].GetValue(), resp.GetCounters()[0].GetExists(), nil
}

func (g grpcDoor) remove(ref counterName) (bool, string, error) {
	resp, err := g.d.counters.Delete(testCtx(g.t), &pb.DeleteCounterRequest{Counter: ref.ref()})
	return resp.GetChanged(), resp.GetToken(), err
}

func (g grpcDoor) like(e *pb.Edge) (bool, string, error) {
	resp, err := g.d.graph.AddEdge(testCtx(g.t), &pb.AddEdgeRequest{Edge: e})
	return resp.GetChanged(), resp.GetToken(), err
}

func (g grpcDoor) unlike(e *pb.Edge) (bool, string, error) {
	resp, err := g.d.graph.DeleteEdge(testCtx(g.t), &pb.DeleteEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst})
	return resp.GetChanged(), resp.GetToken(), err
}

func (g grpcDoor) likes(e *pb.Edge, token string) (bool, error) {
	resp, err := g.d.graph.HasEdge(testCtx(g.t), &pb.HasEdgeRequest{Src: e.Src, Type: e.Type, Dst: e.Dst, Consistency: at(token)})
	return resp.GetExists(), err
}

func (g grpcDoor) count(note uint64, token string) (uint64, error) {
	resp, err := g.d.graph.CountEdges(testCtx(g.t), &pb.CountEdgesRequest{
		Vertex: &pb.Vertex{Type: "note", Id: note}, Type: "like", Direction: pb.Direction_IN, Consistency: at(token)})
	return resp.GetCount(), err
}

func (g grpcDoor) list(note uint64, token string) ([]*pb.Edge, error) {
	req := &pb.ListEdgesRequest{Vertex: &pb.Vertex{Type: "note", Id: note}, Type: "like", Direction: pb.Direction_IN,
		Order: pb.Order_ID_ASCENDING, PageSize: 3, Consistency: at(token)}
	return pages(func(page string) (*pb.ListEdgesResponse, error) {
		req.PageToken = page
		return g.d.graph.ListEdges(testCtx(g.t), req)
	})
}

// pages reads a listing to its end.
func pages(read func(page string) (*pb.ListEdgesResponse, error)) ([]*pb.Edge, error) {
	var all []*pb.Edge
	for page := ""; ; {
		resp, err := read(page)
		if err != nil {
			return nil, err
		}
		all = append(all, resp.GetEdges()...)
		if page = resp.GetNextPageToken(); page == "" {
			return all, nil
		}
	}
}

// jsonDoor is both doors as JSON.
type jsonDoor struct {
	base   string
	client *http.Client
}

// do sends req, where there is one, and reads the answer into resp, or the status of
// an error.
func (j jsonDoor) do(method, path string, req, resp proto.Message) error {
	var body []byte
	if req != nil {
		var err error
		if body, err = protojson.Marshal(req); err != nil {
			return err
		}
	}
	r, err := http.NewRequest(method, j.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := j.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode == http.StatusOK {
		return protojson.Unmarshal(b, resp)
	}
	st := &spb.Status{}
	if err := protojson.Unmarshal(b, st); err != nil {
		return fmt.Errorf("%s %s: %d %s: %w", method, path, answer.StatusCode, b, err)
	}
	return status.ErrorProto(st)
}

// counterPath is where a counter is.
func counterPath(n counterName) string {
	if n.key != "" {
		return "/v1/counters/" + url.PathEscape(n.key)
	}
	return fmt.Sprintf("/v1/vertices/note/%d/counters/%s", n.note, n.metric)
}

// seeing is the query of a read.
func seeing(token string) string {
	if token == "" {
		return "consistency.level=LINEARIZABLE"
	}
	return "consistency.token=" + url.QueryEscape(token)
}

func (j jsonDoor) incr(ref counterName, delta int64) (int64, string, error) {
	resp := &pb.IncrByResponse{}
	err := j.do("POST", "/v1/counters:incr", &pb.IncrByRequest{Increment: &pb.Increment{Counter: ref.ref(), Delta: delta}}, resp)
	return resp.GetValue(), resp.GetToken(), overflowOr(err)
}

func (j jsonDoor) get(ref counterName, token string) (int64, bool, error) {
	resp := &pb.GetCounterResponse{}
	path := counterPath(ref) + "?" + seeing(token)
	if ref.key == "" {
		path = fmt.Sprintf("/v1/vertices/note/%d/counters?metrics=%s&%s", ref.note, ref.metric, seeing(token))
	}
	if err := j.do("GET", path, nil, resp); err != nil {
		return 0, false, err
	}
	return resp.GetCounters()[0].GetValue(), resp.GetCounters()[0].GetExists(), nil
}

func (j jsonDoor) remove(ref counterName) (bool, string, error) {
	resp := &pb.DeleteCounterResponse{}
	err := j.do("DELETE", counterPath(ref), nil, resp)
	return resp.GetChanged(), resp.GetToken(), err
}

func edgePath(e *pb.Edge) string {
	return fmt.Sprintf("/v1/vertices/user/%d/edges/like/note/%d", e.Src.Id, e.Dst.Id)
}

func (j jsonDoor) like(e *pb.Edge) (bool, string, error) {
	resp := &pb.AddEdgeResponse{}
	err := j.do("POST", "/v1/edges", &pb.AddEdgeRequest{Edge: e}, resp)
	return resp.GetChanged(), resp.GetToken(), err
}

func (j jsonDoor) unlike(e *pb.Edge) (bool, string, error) {
	resp := &pb.DeleteEdgeResponse{}
	err := j.do("DELETE", edgePath(e), nil, resp)
	return resp.GetChanged(), resp.GetToken(), err
}

func (j jsonDoor) likes(e *pb.Edge, token string) (bool, error) {
	resp := &pb.HasEdgeResponse{}
	err := j.do("GET", edgePath(e)+":exists?"+seeing(token), nil, resp)
	return resp.GetExists(), err
}

func (j jsonDoor) count(note uint64, token string) (uint64, error) {
	resp := &pb.CountEdgesResponse{}
	err := j.do("GET", fmt.Sprintf("/v1/vertices/note/%d/edges/like:count?direction=IN&%s", note, seeing(token)), nil, resp)
	return resp.GetCount(), err
}

func (j jsonDoor) list(note uint64, token string) ([]*pb.Edge, error) {
	return pages(func(page string) (*pb.ListEdgesResponse, error) {
		resp := &pb.ListEdgesResponse{}
		path := fmt.Sprintf("/v1/vertices/note/%d/edges/like?direction=IN&order=ID_ASCENDING&page_size=3&page_token=%s&%s", note, page, seeing(token))
		return resp, j.do("GET", path, nil, resp)
	})
}

// respDoor counts over the Redis protocol.
type respDoor struct{ conn *respClient }

// write does a command and takes its token.
func (r respDoor) write(args ...string) (int64, string, error) {
	reply, err := r.conn.do(args...)
	if err != nil {
		return 0, "", err
	}
	if reply.kind == '-' && strings.Contains(reply.text, "overflow") {
		return 0, "", errOverflow
	}
	if reply.kind != ':' {
		return 0, "", fmt.Errorf("%v: %v", args, reply)
	}
	n, err := strconv.ParseInt(reply.text, 10, 64)
	if err != nil {
		return 0, "", err
	}
	token, err := r.conn.do("LIANA.TOKEN")
	return n, token.text, err
}

func (r respDoor) incr(ref counterName, delta int64) (int64, string, error) {
	by := strconv.FormatInt(delta, 10)
	if ref.key != "" {
		return r.write("INCRBY", ref.key, by)
	}
	return r.write("HINCRBY", fmt.Sprintf("note:%d", ref.note), ref.metric, by)
}

func (r respDoor) get(ref counterName, token string) (int64, bool, error) {
	if token != "" {
		if reply, err := r.conn.do("LIANA.TOKEN", token); err != nil || reply.kind == '-' {
			return 0, false, fmt.Errorf("token %s: %v: %w", token, reply, err)
		}
	}
	args := []string{"GET", ref.key}
	if ref.key == "" {
		args = []string{"HGET", fmt.Sprintf("note:%d", ref.note), ref.metric}
	}
	reply, err := r.conn.do(args...)
	if err != nil || reply.kind == '_' {
		return 0, false, err
	}
	n, err := strconv.ParseInt(reply.text, 10, 64)
	return n, true, err
}

func (r respDoor) remove(ref counterName) (bool, string, error) {
	args := []string{"DEL", ref.key}
	if ref.key == "" {
		args = []string{"HDEL", fmt.Sprintf("note:%d", ref.note), ref.metric}
	}
	n, token, err := r.write(args...)
	return n == 1, token, err
}

// visitor goes in and out by all doors, alone with its own users, notes and keys, and
// knows what it must find.
type visitor struct {
	number   uint64
	rnd      *rand.Rand
	edges    []edgeDoor
	counters []counterDoor

	liked  map[[2]uint64]int64 // user, note: time
	sums   map[counterName]int64
	tokens map[string]string // the last of each thing
}

func (v *visitor) id() uint64 { return v.number*1000 + uint64(v.rnd.Intn(6)) + 1 }

func (v *visitor) name() counterName {
	if v.rnd.Intn(2) == 0 {
		return counterName{note: v.id(), metric: pick(v.rnd, []string{"views", "shares"})}
	}
	return counterName{key: fmt.Sprintf(pick(v.rnd, []string{"k%d", "a/b:%d", "ключ %d", "%d?x=1&y=%%"}), v.id())}
}

// step does one thing by a door drawn at random, and compares.
func (v *visitor) step() error {
	if v.rnd.Intn(2) == 0 {
		return v.stepCounter(v.name(), pick(v.rnd, v.counters))
	}
	return v.stepEdge(v.id(), v.id(), pick(v.rnd, v.edges))
}

func (v *visitor) stepCounter(ref counterName, door counterDoor) error {
	var got, want any
	var token string
	var err error
	sum, there := v.sums[ref]
	switch v.rnd.Intn(4) {
	case 0:
		got, token, err = door.remove(ref)
		want = there
		delete(v.sums, ref)
	case 1:
		got, _, err = door.get(ref, v.tokens[ref.String()])
		want = sum
	default:
		delta := pick(v.rnd, []int64{1, -1, 7, 1 << 53, math.MaxInt64, math.MinInt64 + 1})
		if (delta > 0 && sum > math.MaxInt64-delta) || (delta < 0 && sum < math.MinInt64-delta) {
			if _, _, err := door.incr(ref, delta); !errors.Is(err, errOverflow) {
				return fmt.Errorf("%T: %v: %d and %d: %v, want an overflow", door, ref, sum, delta, err)
			}
			return nil
		}
		got, token, err = door.incr(ref, delta)
		v.sums[ref] = sum + delta
		want = sum + delta
	}
	return v.compare(door, ref.String(), got, want, token, err)
}

func (v *visitor) stepEdge(user, note uint64, door edgeDoor) error {
	var got, want any
	var token string
	var err error
	key := [2]uint64{user, note}
	_, there := v.liked[key]
	e := like(user, note)
	src, dst := fmt.Sprint("user ", user), fmt.Sprint("note ", note)
	switch v.rnd.Intn(5) {
	case 0:
		got, token, err = door.unlike(e)
		want = there
		delete(v.liked, key)
	case 1:
		got, err = door.likes(e, v.tokens[src])
		want = there
	case 2:
		got, err = door.count(note, v.tokens[dst])
		want = v.countOf(note)
	default:
		e.Time = int64(v.rnd.Intn(1e9)) + 1
		got, token, err = door.like(e)
		want = !there
		if !there {
			v.liked[key] = e.Time
		}
	}
	if token != "" {
		v.tokens[dst] = token
	}
	return v.compare(door, src, got, want, token, err)
}

func (v *visitor) compare(door any, what string, got, want any, token string, err error) error {
	if err != nil || got != want {
		return fmt.Errorf("%T: %s: %v, %w; want %v", door, what, got, err, want)
	}
	if token != "" {
		v.tokens[what] = token
	}
	return nil
}

func (v *visitor) countOf(note uint64) (n uint64) {
	for k := range v.liked {
		if k[1] == note {
			n++
		}
	}
	return n
}

// look compares everything by every door.
func (v *visitor) look() error {
	for i := range uint64(6) {
		note := v.number*1000 + i + 1
		want := map[[2]uint64]int64{}
		for k, t := range v.liked {
			if k[1] == note {
				want[k] = t
			}
		}
		for _, door := range v.edges {
			edges, err := door.list(note, "")
			if err != nil {
				return err
			}
			if got := timesOf(edges); len(edges) != len(got) || !maps.Equal(got, want) {
				return fmt.Errorf("%T: likes of note %d: %v, want %v", door, note, got, want)
			}
		}
	}
	for what := range v.tokens {
		ref, ok := v.named(what)
		if !ok {
			continue
		}
		want, there := v.sums[ref]
		for _, door := range v.counters {
			if got, exists, err := door.get(ref, v.tokens[what]); err != nil || got != want || exists != there {
				return fmt.Errorf("%T: %v: %d, %v, %w; want %d, %v", door, ref, got, exists, err, want, there)
			}
		}
	}
	return nil
}

// named finds the counter of a name that has a token.
func (v *visitor) named(what string) (counterName, bool) {
	var n counterName
	if _, err := fmt.Sscanf(what, "note:%d %s", &n.note, &n.metric); err == nil {
		return n, true
	}
	return counterName{key: what}, !strings.HasPrefix(what, "user ") && !strings.HasPrefix(what, "note ")
}

func timesOf(edges []*pb.Edge) map[[2]uint64]int64 {
	times := map[[2]uint64]int64{}
	for _, e := range edges {
		times[[2]uint64{e.GetSrc().GetId(), e.GetDst().GetId()}] = e.GetTime()
	}
	return times
}

// Several callers go through all doors at once, each alone with its own things; what
// comes in by one door is what the others show.
func TestAllDoorsAreOneModel(t *testing.T) {
	steps, seed := 120, time.Now().UnixNano()
	if os.Getenv("LIANA_LONG") != "" {
		steps = 10_000
	}
	if text := os.Getenv("LIANA_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("LIANA_SEED=%d", seed)
	d := startDaemon(t, t.TempDir())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	t.Cleanup(client.CloseIdleConnections)
	overJSON, overGRPC := jsonDoor{"http://" + d.ready["http"], client}, grpcDoor{t, d}

	var visitors []*visitor
	var all errgroup.Group
	for i := range 4 {
		v := &visitor{
			number: uint64(i), rnd: rand.New(rand.NewSource(seed + int64(i))),
			edges:    []edgeDoor{overGRPC, overJSON},
			counters: []counterDoor{overGRPC, overJSON, respDoor{dialRESP(t, d.ready["resp"])}},
			liked:    map[[2]uint64]int64{}, sums: map[counterName]int64{}, tokens: map[string]string{},
		}
		visitors = append(visitors, v)
		all.Go(func() error {
			for range steps {
				if err := v.step(); err != nil {
					return err
				}
			}
			return v.look()
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	want := map[[2]uint64]int64{}
	for _, v := range visitors {
		maps.Copy(want, v.liked)
	}
	if len(want) == 0 {
		t.Error("nothing is liked")
	}
	for name, export := range map[string]func() ([]*pb.Edge, error){"gRPC": overGRPC.export, "JSON": overJSON.export} {
		edges, err := export()
		if got := timesOf(edges); err != nil || len(edges) != len(want) || !maps.Equal(got, want) {
			t.Errorf("the export by %s has %v, %v; want %v", name, got, err, want)
		}
	}
}

func (g grpcDoor) export() ([]*pb.Edge, error) {
	stream, err := g.d.admin.ExportEdges(testCtx(g.t), &pb.ExportEdgesRequest{Type: "like"})
	if err != nil {
		return nil, err
	}
	var all []*pb.Edge
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, resp.GetEdges()...)
	}
}

func (j jsonDoor) export() ([]*pb.Edge, error) {
	answer, err := j.client.Get(j.base + "/v1/edges:export?type=like")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var all []*pb.Edge
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		line, ok := strings.CutPrefix(lines.Text(), `{"result":`)
		if !ok {
			return nil, errors.New(line)
		}
		resp := &pb.ExportEdgesResponse{}
		if err := protojson.Unmarshal([]byte(strings.TrimSuffix(line, "}")), resp); err != nil {
			return nil, err
		}
		all = append(all, resp.GetEdges()...)
	}
	return all, lines.Err()
}
