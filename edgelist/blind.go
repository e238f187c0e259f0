package edgelist

import (
	"cmp"
	"slices"
)

// AppendInsert appends to dst an operand for the head of a packed list (or of
// none) that adds edges without the list having been read, and moves its version to
// version. The caller knows that the list is packed and has none of the peers;
// an edge to a peer that is there would replace it. Such a list can outgrow
// Options.SplitEntries; it is split when a Writer next changes it.
func AppendInsert(dst []byte, version uint64, edges []Edge) ([]byte, error) {
	var puts, drops table
	puts.reserve(kindPacked, len(edges))
	drops.reset(kindPacked)
	for i := range edges {
		if len(edges[i].Props) > MaxProps {
			return nil, ErrPropsTooLarge
		}
	}
	sorted := slices.Clone(edges)
	slices.SortFunc(sorted, func(a, b Edge) int { return cmp.Compare(a.Peer, b.Peer) })
	for i := range sorted {
		if i > 0 && sorted[i-1].Peer == sorted[i].Peer {
			return nil, corruptf("peer %d is added twice", sorted[i].Peer)
		}
		puts.append(&row{id: sorted[i].Peer, time: sorted[i].Time, props: sorted[i].Props})
	}
	return appendOperand(dst, kindPacked, max(1, len(edges)), version, &puts, &drops), nil
}

// Tree reports whether the list is in tree form.
func (l *List) Tree() bool { return l.head.tree != nil }
