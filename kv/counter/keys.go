package counter

// Kinds of a slot's rows, the byte after its prefix. They are stored.
const (
	kindExpiry  = 1
	kindForget  = 2
	kindAnswer  = 3
	kindAnswers = 4
)

// keySpace makes the keys of the rows of slots [first, end).
type keySpace struct {
	prefix     func(dst []byte, slot uint16) []byte
	first, end uint16
}

func (k keySpace) slots() int { return int(k.end) - int(k.first) }

func (k keySpace) owns(slot uint16) bool { return slot >= k.first && slot < k.end }

func (k keySpace) local(dst []byte, slot uint16, kind byte) []byte {
	return append(k.prefix(dst, slot), kind)
}
