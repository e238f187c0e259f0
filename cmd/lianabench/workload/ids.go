package workload

import "fmt"

// IDs turns ranks (0, 1, 2, …) into vertex ids. Dense ids are 1 … n in a
// shuffled order, so that rank says nothing about the neighbourhood of ids;
// scattered ids are spread over 62 bits, as snowflake or random ids are. Both
// are one-to-one.
type IDs struct {
	scattered bool
}

// ParseIDs reads "dense" or "scattered".
func ParseIDs(s string) (IDs, error) {
	switch s {
	case "dense":
		return IDs{}, nil
	case "scattered":
		return IDs{scattered: true}, nil
	}
	return IDs{}, fmt.Errorf("ids: %q is neither dense nor scattered", s)
}

// Scattered says whether ids are spread over 62 bits.
func (d IDs) Scattered() bool { return d.scattered }

func (d IDs) String() string {
	if d.scattered {
		return "scattered"
	}
	return "dense"
}

// Space returns the ids of n vertices of one type.
func (d IDs) Space(n int) Space {
	return Space{scattered: d.scattered, n: uint64(n), stride: stride(n)}
}

// Space maps the ranks of one vertex type to ids.
type Space struct {
	scattered bool
	n, stride uint64
}

// ID returns the id of a rank. Ranks of n and above are numbered on, unshuffled.
func (s Space) ID(rank int) uint64 {
	r := uint64(rank)
	switch {
	case s.scattered:
		return scatter62(r + 1)
	case r >= s.n:
		return r + 1
	}
	return r*s.stride%s.n + 1
}

// stride returns a number near n/φ without a common divisor with n, so that
// multiples of it visit all of 0 … n-1.
func stride(n int) uint64 {
	s := uint64(float64(n)*0.6180339887) | 1
	for gcd(s, uint64(n)) != 1 {
		s += 2
	}
	return s
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// scatter62 is a one-to-one map of 62-bit numbers that maps only 0 to 0: each
// step (odd multiplication, xor with the own upper half) can be undone.
func scatter62(x uint64) uint64 {
	const mask = 1<<62 - 1
	x &= mask
	x = x * 0x9e3779b97f4a7c15 & mask
	x ^= x >> 31
	x = x * 0xbf58476d1ce4e5b9 & mask
	x ^= x >> 31
	return x
}
