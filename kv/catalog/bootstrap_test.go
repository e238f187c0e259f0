package catalog

import (
	"strings"
	"testing"
)

func TestBootstrapFoundsOneClusterOnly(t *testing.T) {
	list := []string{"a:1", "b:1", "c:1"}
	empty := func(peer string) Answer { return Answer{Peer: peer, Peers: []string{"c:1", "b:1", "a:1"}} }
	member := func(peer, id string) Answer { return Answer{Peer: peer, ClusterID: id} }
	for name, c := range map[string]struct {
		own, self string
		answers   []Answer
		want      BootstrapAction
	}{
		"data decides, whoever answers":                     {"X", "a:1", []Answer{member("b:1", "Y")}, Resume},
		"data decides, cut off":                             {"X", "a:1", nil, Resume},
		"alone":                                             {"", "a:1", nil, Wait},
		"itself twice is no majority":                       {"", "a:1", []Answer{empty("a:1")}, Wait},
		"a majority, the first founds":                      {"", "a:1", []Answer{empty("b:1")}, FoundHere},
		"a majority, the second waits":                      {"", "b:1", []Answer{empty("a:1"), empty("c:1")}, Wait},
		"a majority without the first waits for it":         {"", "b:1", []Answer{empty("c:1")}, Wait},
		"wiped founder, one member answers":                 {"", "a:1", []Answer{empty("b:1"), member("c:1", "X")}, Join},
		"a member that is not in the list counts too":       {"", "a:1", []Answer{empty("b:1"), member("z:1", "X")}, Join},
		"a fourth node with the same flag does not found":   {"", "0:1", []Answer{empty("a:1"), empty("b:1"), empty("c:1")}, Wait},
		"another list":                                      {"", "a:1", []Answer{{Peer: "b:1", Peers: []string{"a:1", "b:1"}}, empty("c:1")}, Wait},
		"two clusters":                                      {"", "a:1", []Answer{member("b:1", "X"), member("c:1", "Y")}, Wait},
		"those not in the list do not make up the majority": {"", "a:1", []Answer{empty("y:1"), empty("z:1")}, Wait},
	} {
		got := DecideBootstrap(c.own, c.self, list, c.answers)
		if got.Action != c.want || (got.Why == "") == (c.want == Wait) {
			t.Errorf("%s: %+v", name, got)
		}
		if strings.Contains(name, "fourth") && !strings.Contains(got.Why, "not in the list") {
			t.Errorf("%s: %+v", name, got)
		}
		if wantID := c.want == Resume || c.want == Join; (got.ClusterID == "X") != wantID {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
