package datadir

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"time"

	"github.com/lianadb/liana/kv"
)

// Format is the version of the layout that this code writes and reads.
const Format = 1

// The number of shards of a directory. MaxShards is the number of slots, since
// a shard holds at least one.
const (
	DefaultShards = 4
	MaxShards     = 4096
)

// tokenKeyBytes is the size of the key that signs tokens.
const tokenKeyBytes = 32

// Identity says whose data a directory holds.
type Identity struct {
	ClusterID string
	NodeID    string
	Timeline  uint64
	TokenKey  []byte // 32 bytes; a secret
	Shards    int
	Created   time.Time
	// Joined: the node joined a cluster, so it never founds one.
	Joined bool
}

// record is the identity as it lies in the file.
type record struct {
	Format    int       `json:"format"`
	ClusterID string    `json:"cluster_id"`
	NodeID    string    `json:"node_id"`
	Timeline  string    `json:"timeline"`
	TokenKey  []byte    `json:"token_key"`
	Shards    int       `json:"shards"`
	Created   time.Time `json:"created"`
	Joined    bool      `json:"joined,omitempty"`
}

// newIdentity draws a new cluster of one node.
func newIdentity(shards int, now time.Time) Identity {
	random := make([]byte, 8+tokenKeyBytes)
	rand.Read(random) // never fails: it ends the process instead
	return Identity{
		ClusterID: newUUID(),
		NodeID:    newUUID(),
		Timeline:  binary.BigEndian.Uint64(random),
		TokenKey:  random[8:],
		Shards:    shards,
		Created:   now.UTC().Truncate(time.Second),
	}
}

// NewNodeID draws the id of a new node.
func NewNodeID() string { return newUUID() }

// newUUID is a random UUID (version 4).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (id Identity) encode() ([]byte, error) {
	b, err := json.MarshalIndent(record{
		Format:    Format,
		ClusterID: id.ClusterID,
		NodeID:    id.NodeID,
		Timeline:  fmt.Sprintf("%016x", id.Timeline),
		TokenKey:  id.TokenKey,
		Shards:    id.Shards,
		Created:   id.Created,
		Joined:    id.Joined,
	}, "", "  ")
	return append(b, '\n'), err
}

// decodeIdentity reads what encode wrote. Another format is ErrFormat; anything
// else that encode would not have written is marked kv.ErrCorruption. The texts
// never quote the file: it holds a secret.
func decodeIdentity(b []byte) (Identity, error) {
	// The version first: what else a file of another format holds is unknown.
	var version struct {
		Format *int `json:"format"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return Identity{}, kv.Corruptionf("not a JSON document: %w", plain(err))
	}
	if version.Format == nil {
		return Identity{}, kv.Corruptionf("it has no format")
	}
	if *version.Format != Format {
		return Identity{}, fmt.Errorf("%w: it has format %d, this program reads format %d",
			ErrFormat, *version.Format, Format)
	}
	var r record
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return Identity{}, kv.Corruptionf("%w", plain(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Identity{}, kv.Corruptionf("there is more after the document")
	}
	return r.identity()
}

// plain keeps of a JSON error what names a place, not what quotes the file.
func plain(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("syntax error at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("%s has the wrong type", kind.Field)
	case unknownField.MatchString(err.Error()):
		return err
	}
	return errors.New("a value cannot be read")
}

var unknownField = regexp.MustCompile(`unknown field "[a-z_]{1,40}"$`)

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

func (r record) identity() (Identity, error) {
	timeline, err := strconv.ParseUint(r.Timeline, 16, 64)
	switch {
	case !uuidForm.MatchString(r.ClusterID):
		return Identity{}, kv.Corruptionf("cluster_id is no UUID")
	case !uuidForm.MatchString(r.NodeID):
		return Identity{}, kv.Corruptionf("node_id is no UUID")
	case err != nil || len(r.Timeline) != 16:
		return Identity{}, kv.Corruptionf("timeline is not 16 hexadecimal digits")
	case len(r.TokenKey) != tokenKeyBytes:
		return Identity{}, kv.Corruptionf("token_key has %d bytes, not %d", len(r.TokenKey), tokenKeyBytes)
	case r.Shards < 1 || r.Shards > MaxShards:
		return Identity{}, kv.Corruptionf("shards is %d, not 1 to %d", r.Shards, MaxShards)
	case r.Created.IsZero():
		return Identity{}, kv.Corruptionf("created is missing")
	}
	return Identity{
		ClusterID: r.ClusterID, NodeID: r.NodeID, Timeline: timeline,
		TokenKey: r.TokenKey, Shards: r.Shards, Created: r.Created, Joined: r.Joined,
	}, nil
}
