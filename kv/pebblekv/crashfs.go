package pebblekv

import (
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// CrashFS is a file system in memory for crash tests: it knows what was synced,
// and gives the images that a loss of power could leave.
type CrashFS struct{ mem *vfs.MemFS }

// NewCrashFS returns an empty file system.
func NewCrashFS() *CrashFS { return &CrashFS{mem: vfs.NewCrashableMem()} }

// FS is c as an option of Open.
func (c *CrashFS) FS() FS { return FS{fs: c.mem} }

// PowerLoss returns a copy of c as loss of power at this moment could leave it:
// all that was synced, and of the rest each block and directory entry with a
// chance of keepPercent (0..100), drawn from seed. c and the stores on it go on.
func (c *CrashFS) PowerLoss(seed uint64, keepPercent int) *CrashFS {
	return &CrashFS{mem: c.mem.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: keepPercent,
		RNG:                 rand.New(rand.NewPCG(seed, 0)),
	})}
}

// Kill returns a copy of c as the end of the process at this moment would leave
// it: all that was written, synced or not.
func (c *CrashFS) Kill() *CrashFS { return c.PowerLoss(0, 100) }
