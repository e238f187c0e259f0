package catalog

import (
	"fmt"
	"slices"
)

// Answer is what a node said when it was asked whether it belongs to a cluster.
type Answer struct {
	Peer      string   // the address it was asked at, as in the list of peers
	ClusterID string   // "" where its data directory is empty
	Peers     []string // the list of peers it was started with
}

// Bootstrap is what a node started with a list of peers is to do now.
type Bootstrap struct {
	Action BootstrapAction
	// ClusterID is the cluster to resume or join.
	ClusterID string
	// Why says, for Wait, what is being waited for.
	Why string
}

// BootstrapAction says what a starting node does.
type BootstrapAction int

// The actions of a starting node.
const (
	Wait      BootstrapAction = iota // ask again
	Resume                           // its data is of a cluster: no list matters
	Join                             // a peer is of a cluster
	FoundHere                        // found the cluster that the others will join
)

// DecideBootstrap says what a node with a list of peers does (RULES F4). own is the
// cluster of its data, "" if it has none; self is its address in the list.
//
// No left-over list founds a second cluster: data decides before any list, a peer that
// knows a cluster before any founding, and founding needs a majority of the listed
// peers to say that they have no data. One listed node alone may found, the first by
// address, so two that see the same majority do not both do it.
func DecideBootstrap(own, self string, peers []string, answers []Answer) Bootstrap {
	if own != "" {
		return Bootstrap{Action: Resume, ClusterID: own}
	}
	seen := ""
	for _, a := range answers {
		switch {
		case a.ClusterID == "" || a.ClusterID == seen:
		case seen == "":
			seen = a.ClusterID
		default:
			return Bootstrap{Why: fmt.Sprintf("the peers belong to two clusters, %s and %s: name peers of one", seen, a.ClusterID)}
		}
	}
	if seen != "" {
		return Bootstrap{Action: Join, ClusterID: seen}
	}
	return decideFounding(self, peers, answers)
}

func decideFounding(self string, peers []string, answers []Answer) Bootstrap {
	list := sortedSet(peers)
	if !slices.Contains(list, self) {
		return Bootstrap{Why: fmt.Sprintf("no peer is of a cluster yet, and this node (%s) is not in the list of those that found one", self)}
	}
	empty := []string{self}
	for _, a := range answers {
		if !slices.Contains(list, a.Peer) {
			continue
		}
		if !slices.Equal(sortedSet(a.Peers), list) {
			return Bootstrap{Why: fmt.Sprintf("%s was started with another list of peers: start all with the same", a.Peer)}
		}
		empty = append(empty, a.Peer)
	}
	if n := len(sortedSet(empty)); n < quorum(len(list)) {
		return Bootstrap{Why: fmt.Sprintf("%d of %d listed nodes are up and without data; founding a cluster needs %d", n, len(list), quorum(len(list)))}
	}
	if self != list[0] {
		return Bootstrap{Why: fmt.Sprintf("%s, the first in the list, founds the cluster", list[0])}
	}
	return Bootstrap{Action: FoundHere}
}

func sortedSet(s []string) []string {
	out := slices.Clone(s)
	slices.Sort(out)
	return slices.Compact(out)
}
