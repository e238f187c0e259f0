package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lianadb/liana/graph"
	pb "github.com/lianadb/liana/proto/liana/v1"
)

// said is an answer of the HTTP port.
type said struct {
	code   int
	header http.Header
	text   string
}

// field finds a value of a JSON answer by the names on the way to it.
func (s said) field(path ...any) any {
	var v any
	if json.Unmarshal([]byte(s.text), &v) != nil {
		return nil
	}
	for _, p := range path {
		switch at := v.(type) {
		case map[string]any:
			v = at[fmt.Sprint(p)]
		case []any:
			i, _ := p.(int)
			if i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}

// ask sends one request; headers are pairs of name and value, and Host is one.
func ask(t *testing.T, s *Server, method, path, body string, headers ...string) said {
	t.Helper()
	req, err := http.NewRequestWithContext(testCtx(t), method, "http://"+s.HTTPAddr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return said{resp.StatusCode, resp.Header, string(b)}
}

// wantRefusal checks an error of the HTTP port: google.rpc.Status with our reason.
func wantRefusal(t *testing.T, s said, code int, reason, field string) {
	t.Helper()
	if s.code != code || s.field("details", 0, "reason") != reason || s.field("details", 0, "domain") != "liana.dev" {
		t.Errorf("%d %s; want %d, %s", s.code, s.text, code, reason)
	}
	if got, _ := s.field("details", 0, "metadata", "field").(string); got != field {
		t.Errorf("%s: field %q, want %q", s.text, got, field)
	}
}

const likeJSON = `{"edge": {"src": {"type": "user", "id": "42"}, "type": "like", "dst": {"type": "note", "id": "7"}, "time": "1000", "properties": {"from": "app"}}}`

const edgePath = "/v1/vertices/user/42/edges/like/note/7"

func TestCallsByJSONMeanWhatTheyDoByGRPC(t *testing.T) {
	r := newRig(t, nil)
	for _, step := range []struct {
		method, path, body string
		want               string // in the answer
	}{
		{"POST", "/v1/edges", likeJSON, `"changed":true`},
		{"POST", "/v1/edges", likeJSON, `"changed":false`},
		{"GET", edgePath + ":exists", "", `"exists":true`},
		{"GET", edgePath, "", `"time":"1000","properties":{"from":"app"}`},
		{"PATCH", "/v1/edges", strings.Replace(likeJSON, "1000", "2000", 1), `"changed":true`},
		{"GET", edgePath, "", `"time":"2000"`},
		{"POST", "/v1/edges:mutate", `{"mutations": [{"op": "ADD", "type": "like", "src_id": "43", "dstId": 7, "time": 5}]}`, `"outcomes":["CHANGED"],"errors":[]`},
		{"POST", "/v1/edges:has", `{"type": "like", "src_ids": [42], "dst_ids": ["7", "8"]}`, `"exists":[true,false]`},
		{"GET", "/v1/vertices/note/7/edges/like:count?direction=IN", "", `"count":"2"`},
		{"GET", "/v1/vertices/note/7/edges/like:count?direction=IN&window.since=1000", "", `"count":"1"`},
		{"POST", "/v1/edges:count", `{"vertices": [{"type": "note", "id": 7}], "lists": [{"type": "like", "direction": "IN"}]}`, `"counts":["2"]`},
		{"GET", "/v1/vertices/note/7/edges/like?direction=IN&order=OLDEST_FIRST&page_size=1", "", `"next_page_token":"1"`},
		{"DELETE", edgePath + "?wait=FORWARD", "", `"changed":true`},
		{"DELETE", edgePath, "", `"changed":false`},
		{"POST", "/v1/counters:incr", `{"increment": {"counter": {"key": "a/b:c é"}, "delta": "5"}}`, `"value":"5"`},
		{"GET", "/v1/counters/a%2Fb:c%20%C3%A9", "", `"key":"a/b:c é"`},
		{"PUT", "/v1/counters/a%2Fb:c%20%C3%A9", `{"value": "-9223372036854775808"}`, `"token"`},
		{"GET", "/v1/counters/a%2Fb:c%20%C3%A9", "", `"value":"-9223372036854775808"`},
		{"DELETE", "/v1/counters/a%2Fb:c%20%C3%A9", "", `"changed":true`},
		{"GET", "/v1/counters/a//../b", "", `"key":"a//../b"`},
		{"GET", "/v1/counters/%2Fk%2F", "", `"key":"/k/"`},
		{"GET", "/v1/counters/k:incr", "", `"key":"k:incr"`},
		{"PUT", "/v1/vertices/note/7/counters/views", `{"value": 3}`, `"token"`},
		{"GET", "/v1/vertices/note/7/counters?metrics=views&metrics=shares", "", `"metric":"views","key":""},"value":"3"`},
		{"POST", "/v1/counters:batchIncr", `{"increments": [{"counter": {"key": "k"}, "delta": 1}, {"counter": {"key": "k"}, "delta": 1}]}`, `"value":"2"`},
		{"POST", "/v1/counters:batchGet", `{"counters": [{"key": "k"}]}`, `"value":"2"`},
		{"DELETE", "/v1/vertices/note/7/counters/views", "", `"changed":true`},
		{"GET", "/v1/schema", "", `"yaml":"`},
		{"GET", "/v1/status", "", `"version":"test"`},
		{"GET", "/v1/edges:export?type=like", "", `{"result":{"edges":[`},
	} {
		got := ask(t, r.Server, step.method, step.path, step.body)
		if got.code != 200 || !strings.Contains(got.text, step.want) || !strings.HasSuffix(got.text, "\n") {
			t.Errorf("%s %s: %d %s\nwant %s in it", step.method, step.path, got.code, got.text, step.want)
		}
	}
}

func TestTheTokenOfAnAnswerIsTakenInJSON(t *testing.T) {
	r := newRig(t, nil)
	token, _ := ask(t, r.Server, "POST", "/v1/edges", likeJSON).field("token").(string)
	if token == "" {
		t.Fatal("a write gives no token")
	}
	if got := ask(t, r.Server, "GET", edgePath+":exists?consistency.token="+token, ""); got.code != 200 {
		t.Errorf("%d %s", got.code, got.text)
	}
	wantRefusal(t, ask(t, r.Server, "GET", edgePath+":exists?consistency.token=bad", ""), 400, "INVALID_FIELD", "consistency.token")
}

func TestMistakesInJSONAreNamed(t *testing.T) {
	r := newRig(t, nil)
	for _, c := range []struct {
		method, path, body string
		code               int
		reason, field      string
	}{
		{"POST", "/v1/edges", `{"egde": {}}`, 400, "INVALID_FIELD", "egde"},
		{"POST", "/v1/edges", `{"edge": {"src": {"typ": "user"}}}`, 400, "INVALID_FIELD", "typ"},
		{"POST", "/v1/edges", `{"edge": {"src": {"type": "user", "id": "x"}}}`, 400, "INVALID_FIELD", "id"},
		{"POST", "/v1/edges", `{"edge": {"src": {"type": "user", "id": -1}}}`, 400, "INVALID_FIELD", "id"},
		{"POST", "/v1/edges", `{"edge": {"src": {"type": "user", "id": 18446744073709551616}}}`, 400, "INVALID_FIELD", "id"},
		{"POST", "/v1/edges", `{"wait": "SOMETIME"}`, 400, "INVALID_FIELD", "wait"},
		{"POST", "/v1/edges", `{"edge": {"src": {"type": "usr", "id": 1}, "type": "like", "dst": {"type": "note", "id": 1}}}`, 400, "INVALID_FIELD", "edge.src.type"},
		{"POST", "/v1/edges", `{"edge": {}} {"edge": {}}`, 400, "INVALID_FIELD", ""},
		{"POST", "/v1/edges", `{"edge": `, 400, "INVALID_FIELD", ""},
		{"POST", "/v1/edges", `[]`, 400, "INVALID_FIELD", ""},
		{"POST", "/v1/edges", " ", 400, "INVALID_FIELD", ""},
		{"POST", "/v1/edges", `{"edge": {"type": "` + "\xff" + `"}}`, 400, "INVALID_FIELD", ""},
		{"POST", "/v1/edges?wait=FORWARD", likeJSON, 400, "INVALID_FIELD", "wait"},
		{"GET", "/v1/vertices/note/7/edges/like:count?direktion=IN", "", 400, "INVALID_FIELD", "direktion"},
		{"GET", "/v1/vertices/note/7/edges/like:count?direction=UP", "", 400, "INVALID_FIELD", "direction"},
		{"GET", "/v1/vertices/note/7/edges/like:count?vertex.id=8", "", 400, "INVALID_FIELD", "vertex.id"},
		{"GET", "/v1/vertices/note/7/edges/like:count?vertexId=8", "", 400, "INVALID_FIELD", "vertexId"},
		{"GET", "/v1/vertices/note/7/edges/like:count?window=8", "", 400, "INVALID_FIELD", "window"},
		{"GET", "/v1/vertices/note/7/edges/like?page_size=1&pageSize=2", "", 400, "INVALID_FIELD", "page_size"},
		{"GET", "/v1/vertices/note/7/edges/like?page_size=%zz", "", 400, "INVALID_FIELD", ""},
		{"GET", "/v1/vertices/note/seven/edges/like", "", 400, "INVALID_FIELD", "vertex.id"},
		{"GET", edgePath, "", 404, "NO_EDGE", ""},
		{"GET", "/v1/nothing", "", 404, "NO_ROUTE", ""},
		{"POST", "/v1/nothing", "{}", 404, "NO_ROUTE", ""},
		{"POST", "/v1/schema", "{}", 405, "NO_ROUTE", ""},
		{"DELETE", "/v1/edges", "", 405, "NO_ROUTE", ""},
		{"GET", "/v1/cluster", "", 501, "NO_CLUSTER", ""},
	} {
		got := ask(t, r.Server, c.method, c.path, c.body)
		t.Logf("%s %s %s: %s", c.method, c.path, c.body, strings.TrimSpace(got.text))
		wantRefusal(t, got, c.code, c.reason, c.field)
	}
	if len(r.fake.edges) != 0 {
		t.Errorf("edges %v, want none", r.fake.edges)
	}
}

func TestNestedJSONIsBounded(t *testing.T) {
	r := newRig(t, nil)
	deep := strings.Repeat(`{"edge":`, 10_000) + "{}" + strings.Repeat("}", 10_000)
	wantRefusal(t, ask(t, r.Server, "POST", "/v1/edges", deep), 400, "INVALID_FIELD", "edge")
	deep = `{"edge":` + strings.Repeat(`[`, 100_000)
	wantRefusal(t, ask(t, r.Server, "POST", "/v1/edges", deep), 400, "INVALID_FIELD", "")
}

// A page of another origin can post a form or plain text without asking.
func TestNoPageCanPostUnasked(t *testing.T) {
	r := newRig(t, func(c *Config) { c.HTTP.CORSOrigins = "https://app.example.com, http://localhost:3000" })
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "text/plain; application/json", "application/jsonx"} {
		wantRefusal(t, ask(t, r.Server, "POST", "/v1/edges", likeJSON, "Content-Type", kind), 415, "BAD_BODY", "")
	}
	wantRefusal(t, ask(t, r.Server, "POST", "/v1/edges", likeJSON, "Content-Encoding", "gzip"), 415, "BAD_BODY", "")
	if got := ask(t, r.Server, "POST", "/v1/edges", "", "X-HTTP-Method-Override", "DELETE", "Content-Type", "application/x-www-form-urlencoded"); got.code != 415 {
		t.Errorf("an overridden method: %d", got.code)
	}
	for _, headers := range [][]string{
		{"Origin", "https://evil.example.com"}, {"Origin", "null"}, {"Origin", "http://localhost"},
		{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, {"Sec-Fetch-Site", "same-site"},
	} {
		wantRefusal(t, ask(t, r.Server, "GET", "/v1/status", "", headers...), 403, "WRONG_ORIGIN", "")
		wantRefusal(t, ask(t, r.Server, "OPTIONS", "/v1/edges", "", headers...), 403, "WRONG_ORIGIN", "")
	}
	if len(r.fake.edges) != 0 {
		t.Errorf("edges %v, want none", r.fake.edges)
	}
	for _, headers := range [][]string{
		{"Origin", "http://" + r.HTTPAddr()}, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"},
		{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, {"Content-Type", "application/json; charset=utf-8"},
	} {
		if got := ask(t, r.Server, "GET", "/v1/status", "", headers...); got.code != 200 || got.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%v: %d %s", headers, got.code, got.text)
		}
	}
}

func TestOriginsOfTheConfigurationMayCall(t *testing.T) {
	const app = "https://app.example.com"
	r := newRig(t, func(c *Config) { c.HTTP.CORSOrigins = "http://localhost:3000," + app })
	asked := ask(t, r.Server, "OPTIONS", "/v1/edges", "", "Origin", app, "Access-Control-Request-Method", "PATCH", "Access-Control-Request-Headers", "content-type")
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin": app, "Access-Control-Allow-Methods": "PATCH",
		"Access-Control-Allow-Headers": "Content-Type", "Access-Control-Max-Age": "600", "Vary": "Origin",
	} {
		if asked.code != 204 || !strings.Contains(asked.header.Get(name), want) {
			t.Errorf("preflight: %d, %s %q, want %q", asked.code, name, asked.header.Get(name), want)
		}
	}
	for _, path := range []string{"/v1/status", "/v1/nothing", "/openapi.json"} {
		got := ask(t, r.Server, "GET", path, "", "Origin", app)
		if got.header.Get("Access-Control-Allow-Origin") != app || got.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %v", path, got.header)
		}
	}
	open := newRig(t, func(c *Config) { c.HTTP.CORSOrigins = "*" })
	if got := ask(t, open.Server, "GET", "/v1/status", "", "Origin", "https://any.example.org"); got.header.Get("Access-Control-Allow-Origin") != "https://any.example.org" {
		t.Errorf("%v", got.header)
	}
}

func TestOtherNamesOfTheServerAreRefused(t *testing.T) {
	r := newRig(t, func(c *Config) { c.HTTP.Hosts = "liana.internal" })
	for _, path := range []string{"/v1/status", "/docs", "/openapi.json", "/debug/pprof/", "/"} {
		for _, host := range []string{"evil.example.com", "evil.example.com:7401", "localhost.evil.example.com", "127.0.0.1.evil.example.com"} {
			wantRefusal(t, ask(t, r.Server, "GET", path, "", "Host", host), 421, "WRONG_HOST", "")
		}
		for _, host := range []string{"localhost", "localhost:9", "127.0.0.1", "[::1]:7401", "[::1]", "10.1.2.3:80", "Liana.Internal:7401"} {
			if got := ask(t, r.Server, "GET", path, "", "Host", host); got.code != 200 {
				t.Errorf("%s as %s: %d", path, host, got.code)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if got := ask(t, r.Server, "GET", path, "", "Host", "pod-7.liana:7401"); got.code != 200 {
			t.Errorf("%s: %d", path, got.code)
		}
	}
}

func TestErrorsOfCallsComeAsStatuses(t *testing.T) {
	r := newRig(t, nil)
	r.fake.hook(func(f *fake) {
		f.onMutate = func(context.Context, []graph.Mutation) ([]graph.MutationResult, error) {
			return nil, graph.ErrBacklogged
		}
	})
	got := ask(t, r.Server, "POST", "/v1/edges", likeJSON)
	wantRefusal(t, got, 503, "BACKLOGGED", "")
	if got.header.Get("Retry-After") != "1" || got.field("code") != 14.0 || got.field("details", 1, "retry_delay") != "1s" {
		t.Errorf("%v %s", got.header, got.text)
	}
	r.fake.hook(func(f *fake) { f.onMutate = nil; f.onRead = func(context.Context) error { panic("oh") } })
	wantRefusal(t, ask(t, r.Server, "GET", edgePath, ""), 500, "INTERNAL", "")
	if n := r.calls.inFlight.Load() + r.calls.bytes.Load(); n != 0 {
		t.Errorf("%d calls and bytes are still counted", n)
	}
	if _, body := get(t, r.Server, "/metrics"); !strings.Contains(body, `liana_grpc_calls_total{code="Internal",method="liana.v1.Graph/GetEdge"} 1`) {
		t.Error("calls by JSON are not counted")
	}
}

func TestLimitsHoldForJSON(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Limits.MaxCalls, c.Limits.MaxMessageBytes, c.Limits.MaxCallTime = 1, 64<<10, 500*time.Millisecond
	})
	large := `{"edge": {"type": "` + strings.Repeat("x", 64<<10) + `"}}`
	wantRefusal(t, ask(t, r.Server, "POST", "/v1/edges", large), 413, "BODY_TOO_LARGE", "")
	if got := ask(t, r.Server, "GET", "/v1/status", "", "X-Long", strings.Repeat("x", 32<<10)); got.code != 431 {
		t.Errorf("a long header: %d", got.code)
	}

	began := make(chan struct{}, 2)
	r.fake.hook(func(f *fake) {
		f.onRead = func(ctx context.Context) error { began <- struct{}{}; <-ctx.Done(); return ctx.Err() }
	})
	first := make(chan said, 1)
	go func() { first <- ask(t, r.Server, "GET", edgePath, "") }()
	<-began
	wantRefusal(t, ask(t, r.Server, "GET", edgePath, ""), 429, "TOO_MANY_CALLS", "")
	wantRefusal(t, <-first, 504, "DEADLINE", "")
	began2 := time.Now()
	wantRefusal(t, ask(t, r.Server, "GET", edgePath, "", "Grpc-Timeout", "20m"), 504, "DEADLINE", "")
	if took := time.Since(began2); took > 400*time.Millisecond {
		t.Logf("a call with a deadline of 20 ms took %v", took)
	}
	wantRefusal(t, ask(t, r.Server, "GET", edgePath, "", "Grpc-Timeout", "soon"), 400, "INVALID_FIELD", "")
}

// A client that sends half a body does not hold its connection for ever.
func TestASlowBodyIsCut(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Limits.MaxCallTime = 200 * time.Millisecond })
	conn, err := net.Dial("tcp", r.HTTPAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/edges HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	wantRefusal(t, said{resp.StatusCode, resp.Header, string(b)}, 408, "SLOW_BODY", "")
}

// One connection serves one call after the other, also past the deadline of a body.
func TestAConnectionIsKept(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Limits.MaxCallTime = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", r.HTTPAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	in := bufio.NewReader(conn)
	for i := range 3 {
		fmt.Fprintf(conn, "POST /v1/edges HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(likeJSON), likeJSON)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
			t.Fatalf("call %d: %d %s %v", i, resp.StatusCode, b, err)
		}
		<-time.After(80 * time.Millisecond) // past the deadlines of this call
	}
}

func TestAnExportIsManyLines(t *testing.T) {
	r := newRig(t, nil)
	const edges = 2*exportEdges + 1
	for i := range uint64(edges) {
		r.fake.mutate(graph.Mutation{Op: graph.OpAdd, Type: 1, Src: i + 1, Dst: 1, Time: 1})
	}
	got := ask(t, r.Server, "GET", "/v1/edges:export", "")
	lines, n := strings.Split(strings.TrimSpace(got.text), "\n"), 0
	for _, l := range lines {
		var msg struct {
			Result struct{ Edges []json.RawMessage }
		}
		if err := json.Unmarshal([]byte(l), &msg); err != nil {
			t.Fatalf("%.100s: %v", l, err)
		}
		n += len(msg.Result.Edges)
	}
	if n != edges || len(lines) < 3 || got.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%d edges in %d lines of %s, want %d", n, len(lines), got.header.Get("Content-Type"), edges)
	}
	wantRefusal(t, ask(t, r.Server, "GET", "/v1/edges:export?type=lik", ""), 400, "INVALID_FIELD", "type")
}

func TestWhenTheServerStopsJSONIsAnswered(t *testing.T) {
	r := newRig(t, nil)
	began, release := make(chan struct{}), make(chan struct{})
	r.fake.hook(func(f *fake) {
		f.onRead = func(context.Context) error { close(began); <-release; return nil }
	})
	answer := make(chan said, 1)
	go func() { answer <- ask(t, r.Server, "GET", edgePath+":exists", "") }()
	<-began
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop(testCtx(t)) }()
	for ask(t, r.Server, "GET", "/v1/status", "").code == 200 {
	}
	wantRefusal(t, ask(t, r.Server, "GET", "/v1/status", ""), 503, "STOPPING", "")
	wantRefusal(t, ask(t, r.Server, "GET", "/v1/edges:export", ""), 503, "STOPPING", "")
	close(release)
	if got := <-answer; got.code != 200 {
		t.Errorf("a call under way: %d %s", got.code, got.text)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestAStopThatCannotWaitEndsJSONCalls(t *testing.T) {
	r := newRig(t, nil)
	began := make(chan struct{})
	r.fake.hook(func(f *fake) {
		f.onRead = func(ctx context.Context) error { close(began); <-ctx.Done(); return ctx.Err() }
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		resp, err := http.Get("http://" + r.HTTPAddr() + edgePath)
		if err == nil {
			resp.Body.Close()
		}
	}()
	<-began
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := r.Stop(ctx); err == nil || !strings.Contains(err.Error(), "1 calls") {
		t.Errorf("%v, want one call unanswered", err)
	}
	<-ended
}

// A client of an export that goes away ends it.
func TestAnExportEndsWithItsClient(t *testing.T) {
	r := newRig(t, nil)
	for i := range uint64(40 * exportEdges) {
		r.fake.mutate(graph.Mutation{Op: graph.OpAdd, Type: 1, Src: i + 1, Dst: 1, Time: 1})
	}
	conn, err := net.Dial("tcp", r.HTTPAddr())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "GET /v1/edges:export HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if _, err := io.CopyN(io.Discard, conn, 1<<10); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	deadline := time.Now().Add(20 * time.Second)
	for r.calls.streams.Load() > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the export goes on")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestTheDocumentAndItsPage(t *testing.T) {
	r := newRig(t, nil)
	doc := ask(t, r.Server, "GET", "/openapi.json", "")
	if doc.field("paths", "/v1/edges", "post") == nil || !bytes.Contains([]byte(doc.header.Get("Content-Type")), []byte("application/json")) {
		t.Errorf("%d %.300s", doc.code, doc.text)
	}
	if got := ask(t, r.Server, "GET", "/docs", ""); got.code != 200 || !strings.Contains(got.header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%d %v", got.code, got.header)
	}
	if _, err := r.graph.HasEdge(testCtx(t), &pb.HasEdgeRequest{Src: user(1), Type: "like", Dst: note(1)}); err != nil {
		t.Error(err)
	}
}
