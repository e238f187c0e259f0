// Package rediscache keeps entries in Redis: standalone, Sentinel or Cluster.
//
// All of a slot lies under one hash tag, so on one Redis node, where one script sees
// it whole. <tl>, <gen>, ids and chunks are written in base 36, "l1" is the version of
// all that follows.
//
//	l1:<tl>:{<slot>}:p                            gen [8] h [8]
//	l1:<tl>:{<slot>}:<gen>:<type>.<id>:c          row
//	l1:<tl>:{<slot>}:<gen>:<type>.<id>:<edge>o:l  window (o: OUT, i: IN)
//	l1:<tl>:{<slot>}:<gen>:<type>.<id>:<edge>o:<chunk>:b
//	l1:<tl>:{<slot>}:<gen>:<entry's rest>:x       lease of an entry's load
//
// h says: every change of the slot up to h has been applied to every entry of this gen.
// An entry's own number a says up to where it stands by itself; it is the state at the
// larger of the two. Numbers are big-endian.
//
//	row     a [8] | fields [8]…
//	window  a [8] total [8] floor [16] flags [1] | edges [16]…, oldest first
//	chunk   a [8] | bits [256]
//	edge    time with its sign bit flipped [8] peer [8]
//
// flags: 1 = some edges have properties. Of a complete window (as many edges as total)
// the floor means nothing.
//
// Nothing is written but by the scripts in scripts/*.lua, each over keys of one tag.
package rediscache
