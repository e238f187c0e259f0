// Package edgelist keeps the edges of one (vertex, edge type, direction) in
// pages of bytes.
//
// The package is pure: it reads pages through a Source, hands changed pages to
// a Sink and knows neither keys nor an engine. One Writer changes a list; any
// number of readers read published pages, which never change.
//
// # Forms
//
// A list up to Options.SplitEntries edges (and Options.MaxPageBytes bytes) is
// packed: its head page holds the edges themselves, sorted by peer. A longer
// one is a tree: its head holds the roots of two B+trees, one by peer (with
// time and properties) and one by (time, peer). It becomes packed again at half
// the limits, so that a list at the border does not change form at each edge.
//
//	head (packed)                       head (tree)
//	+--------------------+              +-------------------------+
//	| edges by peer      |              | count, roots, heights   |
//	+--------------------+              +-----+-------------+-----+
//	                                          |             |
//	                                    by-id branch   by-time branch     separator, child, subtree count
//	                                      /      \        /      \
//	                                   leaf      leaf   leaf     leaf     id+time+props | time+id
//
// # Page layout
//
// The first byte of each value names kind and version of its layout, and two
// flags. A later layout takes new kind numbers. Sizes are in brackets; uvarint
// is the little-endian base-128 form of encoding/binary, at most ten bytes.
//
//	kind:  1 packed head   2 tree head   3 by-id leaf   4 by-time leaf
//	       5 by-id branch  6 by-time branch
//	bits:  0x80 operand    0x40 a properties column follows
//	       0x20 a weight follows the kind
//
//	page    := kind [1] | weight uvarint, if flagged | version uvarint, if packed | block
//	block   := n uvarint | column headers | columns | props, if flagged     (n = 0: nothing after n)
//	header  := minlen<<4 + width [1] | min [minlen]      one a column, little endian
//	column  := n values less min, [width] each           little endian, width 0..8
//	props   := endlen [1] | n ends [endlen] | bytes      end of each edge's properties in bytes
//
// The columns of each kind, in their order (times are two's complement, their
// min is zigzag coded; all others are unsigned):
//
//	packed head, by-id leaf   id, time          sorted by id
//	by-time leaf              time, id          sorted by (time, id)
//	by-id branch              id, child, count  sorted by id
//	by-time branch            time, id, child, count
//
// A block has no padding and no checksum (the engine's blocks have one). A head
// with one edge has 4 bytes beside the id, the time and the version: see
// TestHeaderSize.
//
//	tree head := kind [1] | version | count | edges with props | bytes of props | next page number |
//	             by-id root | by-id height | by-time root | by-time height       all uvarint
//
// The key of a branch entry is a lower bound of its child's keys; the leftmost
// entry of each level has the least key there is (id 0, time -2^63). A root of
// height 0 is a leaf.
//
// # Operands
//
// A small change to a big page is stored as a merge operand: entries to put
// (which replace those of the same key) and keys to drop (absent ones are
// passed over). A branch's operand puts whole entries, so it too can be
// folded twice without harm.
//
//	operand := kind|0x80 [1] | weight uvarint, if flagged | version uvarint, if packed | block of puts | block of drops
//
// A block of drops has the key columns only and no properties. The weight is
// the number of changes an operand carries (when it is not flagged: its
// entries, at least 1) or those that were folded into a page since it was last
// written whole; it tells the writer when to write the page whole again, however
// the engine groups its folds.
//
// # Order of time
//
// Edges of one time are ordered by peer, so (time, id) is a total order and
// descending order is its mirror. All values of both are legal.
package edgelist
