package catalog

// Feature levels count what programs of different age can read. A node registers with
// the level of its program; the level of the cluster is the lowest of them, follows them
// upwards and never comes down. What an older program could not read (a new kind of log
// entry, a new part of a message) is proposed or sent only once the cluster has reached
// the level that brought it, and a node below that level is not let in.
//
// Whoever adds something of that kind gives it the next level here, and asks for it
// where it is proposed.
const (
	// FirstLevel: everything up to the catalog's format 2, with SetSchema, RaiseLevel and
	// nodes that are Leaving.
	FirstLevel = 1
	// SplitLevel: BeginSplit, SplitShard, the parts of maps that come of them, and the
	// entries with which shards split.
	SplitLevel = 2
	// JobsLevel: schemas with derived counters over edges that are there already, which
	// shards count by entries of their logs.
	JobsLevel = 3

	// EditLevel: entries that edit counters in ways that depend on what they are, and the
	// call between nodes that asks for them.
	EditLevel = 4

	// VertexLevel: the entries and records with which vertices are deleted, hidden and
	// restored.
	VertexLevel = 5

	// BirthLevel: shards that are split off keep a row that names their parent.
	BirthLevel = 6

	// ThisLevel is the level of this program.
	ThisLevel = BirthLevel

	// MaxLevel bounds levels. It is part of the format.
	MaxLevel = 1<<31 - 1
)

// LevelOf returns the level that a cluster must have reached before an edit is proposed.
func LevelOf(e Edit) uint32 {
	switch e.(type) {
	case BeginSplit, SplitShard:
		return BirthLevel
	}
	return FirstLevel
}
