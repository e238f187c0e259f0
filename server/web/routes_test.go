package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"google.golang.org/genproto/googleapis/api/annotations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unserved are the calls that the door does not have, and why.
var unserved = map[protoreflect.FullName]string{
	"liana.v1.Graph.StreamMutations": "goes both ways; MutateEdges is its call for HTTP",

	"liana.v1.Admin.PutSchema":        "changes the cluster: operators have the CLI",
	"liana.v1.Admin.Check":            "reads all data: operators have the CLI",
	"liana.v1.Cluster.DrainNode":      "changes the cluster: operators have the CLI",
	"liana.v1.Cluster.ActivateNode":   "changes the cluster: operators have the CLI",
	"liana.v1.Cluster.RemoveNode":     "changes the cluster: operators have the CLI",
	"liana.v1.Cluster.Rebalance":      "changes the cluster: operators have the CLI",
	"liana.v1.Cluster.SplitShard":     "changes the cluster: operators have the CLI",
	"liana.v1.Cluster.SetReplication": "changes the cluster: operators have the CLI",
	"liana.v1.Cache.WarmCache":        "loads Redis: operators have the CLI",
	"liana.v1.Cache.DropCached":       "unloads Redis: operators have the CLI",
}

func eachMethod(f func(m protoreflect.MethodDescriptor)) {
	for _, file := range files() {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				f(methods.Get(j))
			}
		}
	}
}

func TestEveryCallHasARouteOrAReason(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	eachMethod(func(m protoreflect.MethodDescriptor) {
		seen[m.FullName()] = true
		rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		if _, excused := unserved[m.FullName()]; excused == (rule != nil) {
			t.Errorf("%s: rule %v, a reason to have none: %v; give it a google.api.http option in its .proto file, or a reason here",
				m.FullName(), rule, excused)
		}
	})
	for name := range unserved {
		if !seen[name] {
			t.Errorf("%s is gone: take its row away", name)
		}
	}
}

// recorder is a connection that knows which call was last.
type recorder struct{ method string }

var errRecorded = errors.New("recorded")

func (c *recorder) Invoke(_ context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	c.method = method
	return errRecorded
}

func (c *recorder) NewStream(_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	c.method = method
	return nil, errRecorded
}

// The gateway takes the last route that fits, in the order of the .proto files: a path
// that fits two leads to the wrong one without a word.
func TestEveryPathLeadsToItsCall(t *testing.T) {
	conn := &recorder{}
	d, err := New(Config{Conn: conn, MaxBody: 1000, MaxTime: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	h := d.Handler(http.NotFoundHandler())
	paths := 0
	eachMethod(func(m protoreflect.MethodDescriptor) {
		rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		if rule == nil {
			return
		}
		for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
			paths++
			method, pattern := verb(r)
			path := variable.ReplaceAllString(pattern, "7")
			req := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader("{}"))
			req.Header.Set("Content-Type", "application/json")
			conn.method = ""
			h.ServeHTTP(httptest.NewRecorder(), req)
			want := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
			if conn.method != want {
				t.Errorf("%s %s leads to %q, want %q", method, path, conn.method, want)
			}
			if r.GetBody() != "" && r.GetBody() != "*" {
				t.Errorf("%s: the body is one field; the door's rules know whole messages", m.FullName())
			}
		}
	})
	if paths < 20 {
		t.Errorf("%d paths", paths)
	}
}
