package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv/catalog"
	"github.com/lianadb/liana/server"
	"github.com/lianadb/liana/server/peer"
)

// config is everything that can be set. The YAML names are those of the file;
// docs/configuration.md describes each.
type config struct {
	DataDir   string `yaml:"data_dir"`
	Shards    int    `yaml:"shards"` // 0: what the data directory has, 4 in a new one
	Schema    string `yaml:"schema"` // file; empty: the stored one, or the default
	LogFormat string `yaml:"log_format"`
	LogLevel  string `yaml:"log_level"`

	Cluster clusterConfig `yaml:"cluster"`

	Redis redisConfig `yaml:"redis"`
	Cache cacheConfig `yaml:"cache"`
	Sink  sinkConfig  `yaml:"sink"`

	server.Config `yaml:",inline"`

	Storage storageConfig `yaml:"storage"`
}

// clusterConfig says how the node is one of several.
type clusterConfig struct {
	// Join are peer addresses, with commas between, of nodes of the cluster that a new
	// data directory joins; an existing one is of its cluster already.
	Join string `yaml:"join"`
	// Replication is the number of replicas of each shard, where this node founds the
	// cluster (0: 1).
	Replication int `yaml:"replication"`
	// Roles are gateway, storage or both, with a comma between.
	Roles string `yaml:"roles"`
	// Zone is a failure domain, such as a rack: replicas of a shard go to different ones.
	Zone string `yaml:"zone"`
	// DeadAfter is how long a node may be away before its replicas are made anew
	// elsewhere.
	DeadAfter time.Duration `yaml:"dead_after"`
	// MaxDead is how many nodes may be replaced so at once (0: a quarter of them).
	MaxDead int `yaml:"max_dead"`
	// MovesAtOnce is how many shards change their members at the same time.
	MovesAtOnce int `yaml:"moves_at_once"`
	// MoveBytes is how many bytes a second this node sends for moves (0: moveBytes for
	// each processor).
	MoveBytes int64 `yaml:"move_bytes_per_second"`
	// TLS are the files of this node's certificate; without them nodes talk in the clear.
	TLS tlsConfig `yaml:"tls"`
}

// tlsConfig names PEM files: this node's certificate and key, and the authority that
// the nodes of the cluster are to be certified by.
type tlsConfig struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	CA   string `yaml:"ca"`
}

// read returns what the files hold, nil where none are named.
func (c tlsConfig) read() (*tls.Config, error) {
	if c == (tlsConfig{}) {
		return nil, nil
	}
	conf, err := peer.TLSFiles(c).Config()
	if err != nil {
		return nil, usageError{fmt.Errorf("cluster.tls: %w", err)}
	}
	return conf, nil
}

// Roles of a node.
const (
	roleGateway = "gateway"
	roleStorage = "storage"
)

// has reports whether the node has a role.
func (c clusterConfig) has(role string) bool {
	return slices.Contains(strings.Split(c.Roles, ","), role)
}

// moveBytes is what a node sends a second for moves, by default, for each processor: state is
// encoded, built into tables and compacted, so what it may take is a share of those.
const moveBytes = 2 << 20

// moveRate is what the node sends a second for moves.
func (c clusterConfig) moveRate() int64 {
	if c.MoveBytes > 0 {
		return c.MoveBytes
	}
	return moveBytes * int64(runtime.GOMAXPROCS(0))
}

func (c clusterConfig) validate() error {
	var errs []error
	if c.Replication < 0 || c.Replication > 7 || c.Replication != 0 && c.Replication%2 == 0 {
		errs = append(errs, fmt.Errorf("cluster.replication: %d (allowed: 1, 3, 5 or 7)", c.Replication))
	}
	for r := range strings.SplitSeq(c.Roles, ",") {
		if r != roleGateway && r != roleStorage {
			errs = append(errs, fmt.Errorf("cluster.roles: %q (allowed: gateway, storage, or both with a comma between)", r))
		}
	}
	if c.Join == "" && !c.has(roleStorage) {
		errs = append(errs, errors.New("cluster.roles: a node that joins no cluster needs the role storage"))
	}
	if c.DeadAfter < time.Second {
		errs = append(errs, fmt.Errorf("cluster.dead_after: %v (allowed: 1s or more)", c.DeadAfter))
	}
	if c.MovesAtOnce < 1 || c.MovesAtOnce > 64 {
		errs = append(errs, fmt.Errorf("cluster.moves_at_once: %d (allowed: 1 to 64)", c.MovesAtOnce))
	}
	if c.MoveBytes < 0 || c.MoveBytes > 0 && c.MoveBytes < 1<<20 {
		errs = append(errs, fmt.Errorf("cluster.move_bytes_per_second: %d (allowed: 1048576 or more, or 0 for 2097152 a processor)", c.MoveBytes))
	}
	if t := c.TLS; t != (tlsConfig{}) && (t.Cert == "" || t.Key == "" || t.CA == "") {
		errs = append(errs, errors.New("cluster.tls: cert, key and ca belong together: name all three, or none"))
	}
	if c.MaxDead < 0 || c.MaxDead > catalog.MaxNodes {
		errs = append(errs, fmt.Errorf("cluster.max_dead: %d (allowed: 0 to %d)", c.MaxDead, catalog.MaxNodes))
	}
	return errors.Join(errs...)
}

// storageConfig trades memory and disk against speed.
type storageConfig struct {
	MemoryLimitBytes int64         `yaml:"memory_limit_bytes"`
	PageCacheBytes   int           `yaml:"page_cache_bytes"`
	BlockCacheBytes  int64         `yaml:"block_cache_bytes"`
	MemtableBytes    uint64        `yaml:"memtable_bytes"`
	RaftLogBytes     int64         `yaml:"raft_log_bytes"`
	ChangeLogEntries uint64        `yaml:"change_log_entries"`
	MaxBacklogBytes  int           `yaml:"max_backlog_bytes"`
	MaxBacklogAge    time.Duration `yaml:"max_backlog_age"`
	FreshWait        time.Duration `yaml:"fresh_wait"`
	Lists            listsConfig   `yaml:"lists"`
}

// listsConfig bounds the pages of edge lists.
type listsConfig struct {
	SplitEntries int `yaml:"split_entries"`
	MaxPageBytes int `yaml:"max_page_bytes"`
	MaxDeltas    int `yaml:"max_deltas"`
	Branch       int `yaml:"branch"`
}

func defaults() config {
	lists := edgelist.DefaultOptions()
	return config{
		DataDir:   "./liana-data",
		LogFormat: "text",
		LogLevel:  "info",
		Cluster:   clusterConfig{Roles: roleGateway + "," + roleStorage, DeadAfter: 5 * time.Minute, MovesAtOnce: 2},
		Cache:     cacheDefaults(),
		Sink:      sinkConfig{Stream: "liana:changes"},
		Config:    server.Defaults(),
		Storage: storageConfig{
			MemoryLimitBytes: 768 << 20,
			PageCacheBytes:   96 << 20,
			BlockCacheBytes:  96 << 20,
			MemtableBytes:    32 << 20,
			RaftLogBytes:     256 << 20,
			ChangeLogEntries: 1 << 20,
			MaxBacklogBytes:  64 << 20,
			MaxBacklogAge:    5 * time.Second,
			FreshWait:        2 * time.Second,
			Lists: listsConfig{
				SplitEntries: lists.SplitEntries, MaxPageBytes: lists.MaxPageBytes,
				MaxDeltas: lists.MaxDeltas, Branch: lists.Branch,
			},
		},
	}
}

func (l listsConfig) options() edgelist.Options {
	return edgelist.Options{SplitEntries: l.SplitEntries, MaxPageBytes: l.MaxPageBytes, MaxDeltas: l.MaxDeltas, Branch: l.Branch}
}

// validate names every field that is wrong, by its YAML name.
func (c config) validate() error {
	var errs []error
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	add(c.DataDir == "", "data_dir: is empty; name a directory")
	add(c.Shards < 0 || c.Shards > graph.MaxShards, "shards: %d (allowed: 1 to %d, or 0 for what the data directory has)", c.Shards, graph.MaxShards)
	add(c.LogFormat != "text" && c.LogFormat != "json", "log_format: %q (allowed: text, json)", c.LogFormat)
	_, err := logLevel(c.LogLevel)
	add(err != nil, "log_level: %q (allowed: debug, info, warn, error)", c.LogLevel)
	return errors.Join(errors.Join(errs...), c.Cluster.validate(), c.Redis.validate(), c.Cache.validate(), c.Sink.validate(), c.Config.Validate(), c.Storage.validate())
}

func (s storageConfig) validate() error {
	var errs []error
	bound := func(field string, value, least, most int64) {
		if value < least || value > most {
			errs = append(errs, fmt.Errorf("storage.%s: %d (allowed: %d to %d)", field, value, least, most))
		}
	}
	bound("memory_limit_bytes", s.MemoryLimitBytes, 0, 1<<44)
	bound("page_cache_bytes", int64(s.PageCacheBytes), 1<<20, 1<<40)
	bound("block_cache_bytes", s.BlockCacheBytes, 1<<20, 1<<40)
	bound("memtable_bytes", int64(min(s.MemtableBytes, 1<<62)), 1<<20, 1<<30)
	bound("raft_log_bytes", s.RaftLogBytes, 1<<20, 1<<40)
	bound("change_log_entries", int64(min(s.ChangeLogEntries, 1<<62)), 1, 1<<40)
	bound("max_backlog_bytes", int64(s.MaxBacklogBytes), 1<<20, 1<<40)
	if s.MaxBacklogAge < time.Millisecond {
		errs = append(errs, fmt.Errorf("storage.max_backlog_age: %v (allowed: 1ms or more)", s.MaxBacklogAge))
	}
	if s.FreshWait < time.Millisecond {
		errs = append(errs, fmt.Errorf("storage.fresh_wait: %v (allowed: 1ms or more)", s.FreshWait))
	}
	if err := s.Lists.options().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("storage.lists: %w", err))
	}
	return errors.Join(errs...)
}

// flags are the flags of a command that reads the configuration.
type flags struct {
	set  *pflag.FlagSet
	file string
}

// newFlags defines the flags. Their values are read by load: the file lies
// between them and the defaults.
func newFlags(set *pflag.FlagSet) *flags {
	f := &flags{set: set}
	unused := defaults()
	bind(set, &unused)
	set.StringVar(&f.file, "config", "", "YAML file with these settings and more (see docs/configuration.md)")
	return f
}

// bind ties the flags to the fields of c; the values of c become the defaults.
func bind(set *pflag.FlagSet, c *config) {
	set.StringVar(&c.DataDir, "data-dir", c.DataDir, "directory of the data; it is created where there is none")
	set.IntVar(&c.Shards, "shards", c.Shards, "number of shards that a new cluster begins with (0: what the directory has; 4 in a new one)")
	set.StringVar(&c.Schema, "schema", c.Schema, "YAML file of vertex types, edge types and metrics (default: the stored schema)")
	set.StringVar(&c.GRPCAddr, "grpc-addr", c.GRPCAddr, "address of the gRPC API; port 0 takes a free one")
	set.StringVar(&c.HTTPAddr, "http-addr", c.HTTPAddr, "address of health, metrics and profiles")
	set.StringVar(&c.RESPAddr, "resp-addr", c.RESPAddr, "address of the Redis protocol")
	set.StringVar(&c.PeerAddr, "peer-addr", c.PeerAddr, "address for the other nodes of the cluster")
	set.StringVar(&c.Cluster.Join, "join", c.Cluster.Join, "peer addresses, with commas between, of nodes whose cluster a new data directory joins")
	set.IntVar(&c.Cluster.Replication, "replication", c.Cluster.Replication, "replicas of each shard, where this node founds the cluster: 1, 3, 5 or 7 (0: 1)")
	set.StringVar(&c.Cluster.Roles, "roles", c.Cluster.Roles, "what the node does: gateway, storage or both")
	set.StringVar(&c.Redis.Addrs, "redis", c.Redis.Addrs, "host:port of a Redis to cache in, or of several nodes of a Redis Cluster with commas between (default: no cache)")
	set.BoolVar(&c.AllowRemote, "allow-remote", c.AllowRemote, "permit addresses that other machines can reach; there is no authentication")
	set.StringVar(&c.LogFormat, "log-format", c.LogFormat, "text or json")
	set.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
}

// load is the effective configuration: flags over the file over the defaults.
func (f *flags) load() (config, error) {
	c := defaults()
	if f.file != "" {
		if err := readFile(f.file, &c); err != nil {
			return c, err
		}
	}
	over := pflag.NewFlagSet("", pflag.ContinueOnError)
	bind(over, &c)
	var errs []error
	f.set.Visit(func(given *pflag.Flag) {
		if over.Lookup(given.Name) != nil {
			errs = append(errs, over.Set(given.Name, given.Value.String()))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return c, err
	}
	return c, c.validate()
}

func readFile(path string, c *config) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if err := decodeYAML(b, c); err != nil {
		return fmt.Errorf("config: %s: %w", path, err)
	}
	return nil
}

// unknownKey is how the YAML package says that a key has no field.
var unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)

// decodeYAML reads one document into c. A key that c does not have is an error
// with its line.
func decodeYAML(b []byte, c *config) error {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	err := dec.Decode(c)
	var bad *yaml.TypeError
	switch {
	case errors.Is(err, io.EOF): // nothing but comments
		return nil
	case errors.As(err, &bad):
		return errors.New(unknownKey.ReplaceAllString(strings.Join(bad.Errors, "; "), `unknown key "$1"`))
	case err != nil:
		return err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("it holds more than one document")
	}
	return nil
}
