package shard

// logSizeStep is the grain, in bytes, in which the size of a log is known.
const logSizeStep = 256 << 10

// logSize estimates how many bytes the entries of a log take, and where in the
// log they lie, from marks one step apart.
type logSize struct {
	end   int64 // bytes ever added
	begin int64 // of these, bytes dropped at the front
	marks []logMark
}

// logMark says that the entries up to index end at that many bytes.
type logMark struct {
	index uint64
	end   int64
}

// add counts bytes whose last entry is index, and returns them.
func (s *logSize) add(index uint64, bytes int64) int64 {
	s.end += bytes
	last := s.begin
	if n := len(s.marks); n > 0 {
		last = s.marks[n-1].end
	}
	if s.end-last >= logSizeStep {
		s.mark(index)
	}
	return bytes
}

func (s *logSize) mark(index uint64) { s.marks = append(s.marks, logMark{index, s.end}) }

// dropTo forgets the entries up to index and returns the change of the size.
func (s *logSize) dropTo(index uint64) int64 {
	before := s.begin
	n := 0
	for n < len(s.marks) && s.marks[n].index <= index {
		s.begin = s.marks[n].end
		n++
	}
	s.marks = s.marks[n:]
	return before - s.begin
}

// dropMarks forgets what is known of entries beyond index, but not their size:
// a replaced tail is small, and its size goes with the next truncation.
func (s *logSize) dropMarks(index uint64) {
	for n := len(s.marks); n > 0 && s.marks[n-1].index > index; n-- {
		s.marks = s.marks[:n-1]
	}
}

func (s *logSize) dropAll() int64 {
	change := s.begin - s.end
	*s = logSize{}
	return change
}

// boundary returns an index beyond which the entries take at most keep bytes,
// give or take one step; 0 if the whole log does.
func (s *logSize) boundary(keep int64) uint64 {
	for _, m := range s.marks {
		if s.end-m.end <= keep {
			if s.end-s.begin <= keep {
				return 0
			}
			return m.index
		}
	}
	if n := len(s.marks); n > 0 {
		return s.marks[n-1].index
	}
	return 0
}
