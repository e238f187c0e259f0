package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Errors of Open. They are wrapped; test them with errors.Is. A directory that
// another process has open is kv.ErrLocked, a damaged LIANA kv.ErrCorruption.
var (
	// ErrFormat: the directory was made by a version with another layout.
	ErrFormat = errors.New("data directory has another format")
	// ErrForeign: the directory holds files and none of them is LIANA.
	ErrForeign = errors.New("not a data directory of Liana")
	// ErrAbsent: a read-only open of a directory that does not exist or is empty.
	ErrAbsent = errors.New("there is no data directory")
	// ErrCluster: the directory belongs to another cluster than the one to join.
	ErrCluster = errors.New("data directory belongs to another cluster")
	// ErrShards: the directory was created with another number of shards.
	ErrShards = errors.New("the number of shards is fixed when a data directory is created")
)

// Names within the directory.
const (
	identityFile = "LIANA"
	draftFile    = "LIANA.new"
	lockFile     = "LOCK"
	stateDir     = "state"
	logDir       = "log"
	stableFile   = "raft.db"
	mapFile      = "MAP"
)

// Options say how to open a directory.
type Options struct {
	// Shards is the number of shards wanted, 1 to MaxShards; 0: DefaultShards in a
	// new directory and in an existing one what it has.
	Shards int
	// Cluster is the cluster that a new directory joins; an existing one must be of
	// it. nil: a new directory founds a cluster of its own.
	Cluster *Identity
	// ReadOnly opens an existing directory and changes nothing in it. Several
	// processes may have it open so, and none for writing meanwhile.
	ReadOnly bool
}

// Dir is an open data directory.
type Dir struct {
	path string
	id   Identity
	lock *lock
}

// Open opens the data directory at path, or creates it where path does not
// exist or is empty. It fails where the directory is in use, foreign, damaged,
// of another format or of another number of shards, and changes nothing then.
func Open(path string, opts Options) (*Dir, error) {
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, explain(path, err)
	}
	d, err := open(whole, opts)
	if err != nil {
		return nil, explain(whole, err)
	}
	return d, nil
}

func open(path string, opts Options) (*Dir, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	found, err := look(path)
	if err != nil {
		return nil, err
	}
	if opts.ReadOnly && found != ours {
		return nil, ErrAbsent
	}
	if found == missing {
		if err := makeDir(path); err != nil {
			return nil, err
		}
	}
	l, err := acquire(filepath.Join(path, lockFile), opts.ReadOnly)
	if err != nil {
		return nil, err
	}
	// What was found before the lock was held may have changed since.
	id, err := settle(path, opts)
	if err != nil {
		return nil, errors.Join(err, l.release())
	}
	return &Dir{path: path, id: id, lock: l}, nil
}

// Peek returns the identity of the data at path, and whether there is any yet. It
// locks and changes nothing.
func Peek(path string) (Identity, bool, error) {
	found, err := look(path)
	if err != nil || found != ours {
		return Identity{}, false, explain(path, err)
	}
	b, err := os.ReadFile(filepath.Join(path, identityFile))
	if err != nil {
		return Identity{}, false, explain(path, err)
	}
	id, err := decodeIdentity(b)
	return id, err == nil, explain(path, err)
}

func (o Options) validate() error {
	if o.Shards < 0 || o.Shards > MaxShards {
		return fmt.Errorf("shards is %d; 1 to %d are possible", o.Shards, MaxShards)
	}
	return nil
}

// settle reads the identity or, in a new directory, writes one.
func settle(path string, opts Options) (Identity, error) {
	found, err := look(path)
	if err != nil {
		return Identity{}, err
	}
	if found != ours {
		if opts.ReadOnly {
			return Identity{}, ErrAbsent
		}
		return create(path, opts)
	}
	b, err := os.ReadFile(filepath.Join(path, identityFile))
	if err != nil {
		return Identity{}, err
	}
	id, err := decodeIdentity(b)
	if err != nil {
		return Identity{}, err
	}
	if c := opts.Cluster; c != nil && c.ClusterID != id.ClusterID {
		return Identity{}, fmt.Errorf("%w: it is of cluster %s, asked to join %s", ErrCluster, id.ClusterID, c.ClusterID)
	}
	if opts.Shards != 0 && opts.Shards != id.Shards {
		return Identity{}, fmt.Errorf("%w: it has %d, asked for were %d", ErrShards, id.Shards, opts.Shards)
	}
	return id, nil
}

// finding is what lies at a path.
type finding int

const (
	missing finding = iota // nothing
	empty                  // a directory without data
	ours                   // a directory with a LIANA
)

// look fails for what is no directory of ours and must not become one.
func look(path string) (finding, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return missing, nil
	}
	if err != nil {
		return missing, err
	}
	other := ""
	for _, e := range entries {
		switch e.Name() {
		case identityFile:
			return ours, nil
		case draftFile, lockFile, "lost+found":
			// Left by a creation that was cut short, or by the file system.
		default:
			other = e.Name()
		}
	}
	if other != "" {
		return missing, fmt.Errorf("%w: it holds %q and no %s", ErrForeign, other, identityFile)
	}
	return empty, nil
}

// create writes a new identity: complete and durable under its name, or not at
// all.
func create(path string, opts Options) (Identity, error) {
	shards := opts.Shards
	if shards == 0 {
		shards = DefaultShards
	}
	id := newIdentity(shards, time.Now())
	if c := opts.Cluster; c != nil {
		id = *c
		id.Joined = true
		id.Created = time.Now().UTC().Truncate(time.Second)
	}
	b, err := id.encode()
	if err != nil {
		return Identity{}, err
	}
	draft := filepath.Join(path, draftFile)
	if err := writeSynced(draft, b); err != nil {
		return Identity{}, err
	}
	if err := os.Rename(draft, filepath.Join(path, identityFile)); err != nil {
		return Identity{}, err
	}
	return id, syncDir(path)
}

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// makeDir makes path and its parents, and the entry of each new one durable.
func makeDir(path string) error {
	parent := filepath.Dir(path)
	if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Identity returns whose data this is. Its TokenKey is shared, not to be changed.
func (d *Dir) Identity() Identity { return d.id }

// Path returns the directory, as an absolute path.
func (d *Dir) Path() string { return d.path }

// StatePath returns the directory of the state engine.
func (d *Dir) StatePath() string { return filepath.Join(d.path, stateDir) }

// LogPath returns the directory of the log engine.
func (d *Dir) LogPath() string { return filepath.Join(d.path, logDir) }

// StablePath returns the file of the Raft groups' terms and votes.
func (d *Dir) StablePath() string { return filepath.Join(d.path, stableFile) }

// MapPath returns the file of the last map of the cluster.
func (d *Dir) MapPath() string { return filepath.Join(d.path, mapFile) }

// Close gives the directory free. Close the engines in it first.
func (d *Dir) Close() error { return d.lock.release() }
