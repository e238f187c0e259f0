package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lianadb/liana/cmd/lianabench/target"
	"github.com/lianadb/liana/cmd/lianabench/workload"
)

// config is what all commands share.
type config struct {
	targets []string
	ids     string
	seed    uint64
	workDir string
	output  string
	html    string
	quiet   bool
	liana   target.LianaOptions
}

// addFlags adds the common flags. Without targets there is no choice of them.
func (c *config) addFlags(cmd *cobra.Command, targets []string) {
	f := cmd.Flags()
	if targets != nil {
		f.StringSliceVar(&c.targets, "targets", targets, "systems to measure, the first is compared with the others: liana, liana-stream, redis-fsync, redis, redis-bitmap, postgres")
	}
	f.StringVar(&c.ids, "ids", "scattered", "vertex ids: scattered (over 62 bits) or dense (1 … n)")
	f.Uint64Var(&c.seed, "seed", 1, "seed of all operations")
	f.StringVar(&c.workDir, "work-dir", os.TempDir(), "where the servers' data goes; the disk that is measured")
	f.StringVarP(&c.output, "output", "o", "table", "table or json, to standard output")
	f.StringVar(&c.html, "html", "", "also write the report as an HTML page to this file")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "no progress on standard error")
	f.StringVar(&c.liana.Binary, "lianad", defaultLianad(), "path of the server binary")
	f.StringVar(&c.liana.Addr, "liana-addr", "", "measure the running server at this gRPC address instead of starting one")
	f.IntVar(&c.liana.Shards, "shards", 4, "shards of a started lianad")
	f.IntVar(&c.liana.Conns, "conns", 4, "gRPC connections, shared by all callers")
	f.StringVar(&c.liana.API, "api", target.APIMutate, "call for batches: mutate (MutateEdges) or stream (StreamMutations)")
	f.BoolVar(&c.liana.Forward, "wait-forward", false, "writes wait for the edge only, not for its inverse")
	f.BoolVar(&c.liana.Linearizable, "linearizable", false, "reads confirm the leader")
}

// defaultLianad is the server that was built beside this program, or, under "go
// run", the one in bin.
func defaultLianad() string {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "lianad")
		if _, err := os.Stat(beside); err == nil {
			return beside
		}
	}
	return filepath.Join("bin", "lianad")
}

// validate checks what is common to all commands.
func (c *config) validate() (workload.IDs, error) {
	if c.output != "table" && c.output != "json" {
		return workload.IDs{}, fmt.Errorf("--output: %q is neither table nor json", c.output)
	}
	if c.liana.API != target.APIMutate && c.liana.API != target.APIStream {
		return workload.IDs{}, fmt.Errorf("--api: %q is neither mutate nor stream", c.liana.API)
	}
	if c.targets != nil && len(c.targets) == 0 {
		return workload.IDs{}, errors.New("--targets: name at least one")
	}
	for _, name := range c.targets {
		if !slices.Contains(target.Names(), name) {
			return workload.IDs{}, fmt.Errorf("--targets: %q is none of %v", name, target.Names())
		}
	}
	binary, err := filepath.Abs(c.liana.Binary)
	if err != nil {
		return workload.IDs{}, fmt.Errorf("--lianad: %w", err)
	}
	c.liana.Binary = binary
	return workload.ParseIDs(c.ids)
}
