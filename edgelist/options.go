package edgelist

import "fmt"

// Options bound the pages of a list. They may change from one run to the next:
// pages over a lower bound are split when they are next changed.
type Options struct {
	// SplitEntries is the most edges a packed head or a leaf holds. Default 512.
	SplitEntries int
	// MaxPageBytes bounds the stored size of a page, properties included.
	// Default 16 KiB. Pages are measured by an upper bound of their size.
	MaxPageBytes int
	// MaxDeltas is the number of changes a page takes by operands before it is
	// written whole again. Default 128.
	MaxDeltas int
	// Branch is the most children a branch page has. Default 256.
	Branch int
}

// The largest bounds that Options may set, and that Check accepts.
const (
	maxSplitEntries = 1 << 15
	maxPageBytes    = 1 << 20
)

// DefaultOptions returns the defaults; DESIGN.md has the benchmark behind them.
func DefaultOptions() Options {
	return Options{SplitEntries: 512, MaxPageBytes: 16 << 10, MaxDeltas: 128, Branch: 256}
}

// Validate reports the first bound that cannot work.
func (o Options) Validate() error {
	switch {
	case o.SplitEntries < 4 || o.SplitEntries > maxSplitEntries:
		return fmt.Errorf("edgelist: SplitEntries %d: must be 4 to %d", o.SplitEntries, maxSplitEntries)
	case o.Branch < 4 || o.Branch > maxSplitEntries:
		return fmt.Errorf("edgelist: Branch %d: must be 4 to %d", o.Branch, maxSplitEntries)
	case o.MaxDeltas < 1 || o.MaxDeltas > maxSplitEntries:
		return fmt.Errorf("edgelist: MaxDeltas %d: must be 1 to %d", o.MaxDeltas, maxSplitEntries)
	case o.MaxPageBytes < 4*(MaxProps+leafRow+propsRow+pageFixed) || o.MaxPageBytes > maxPageBytes:
		// Four of the largest edges, so that a split has something to split.
		return fmt.Errorf("edgelist: MaxPageBytes %d: must be %d to %d", o.MaxPageBytes, 4*(MaxProps+leafRow+propsRow+pageFixed), maxPageBytes)
	case o.Branch*branchRow+pageFixed > o.MaxPageBytes:
		return fmt.Errorf("edgelist: Branch %d: its pages could exceed MaxPageBytes %d", o.Branch, o.MaxPageBytes)
	case o.SplitEntries*leafRow+pageFixed > o.MaxPageBytes:
		return fmt.Errorf("edgelist: SplitEntries %d: its pages could exceed MaxPageBytes %d", o.SplitEntries, o.MaxPageBytes)
	}
	return nil
}
