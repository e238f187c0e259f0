package server

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/lianadb/liana/proto/liana/v1"
	"github.com/lianadb/liana/server/web"
)

func TestEveryCallAndReasonIsDocumented(t *testing.T) {
	b, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, desc := range []grpc.ServiceDesc{pb.Graph_ServiceDesc, pb.Counters_ServiceDesc, pb.Changes_ServiceDesc, pb.Admin_ServiceDesc, pb.Cache_ServiceDesc} {
		for _, m := range desc.Methods {
			if !strings.Contains(doc, "`"+m.MethodName+"`") {
				t.Errorf("docs/api.md does not name %s", m.MethodName)
			}
		}
		for _, s := range desc.Streams {
			if !strings.Contains(doc, "`"+s.StreamName+"`") {
				t.Errorf("docs/api.md does not name %s", s.StreamName)
			}
		}
	}
	rows := append(rules(), rule{reason: reasonInvalid}, rule{reason: reasonInternal})
	known := map[string]bool{}
	for _, r := range rows {
		known[r.reason] = true
		if !strings.Contains(doc, "| `"+r.reason+"` |") {
			t.Errorf("docs/api.md does not explain %s", r.reason)
		}
	}
	for _, reason := range web.Reasons() {
		known[reason] = true
		if !strings.Contains(doc, "| `"+reason+"` |") {
			t.Errorf("docs/api.md does not explain %s", reason)
		}
	}
	for line := range strings.Lines(doc[strings.Index(doc, "| reason |"):]) {
		cells := strings.Split(line, "`")
		if strings.HasPrefix(line, "| `") && !known[cells[1]] {
			t.Errorf("docs/api.md explains %s, which nobody gets", cells[1])
		}
	}
}
