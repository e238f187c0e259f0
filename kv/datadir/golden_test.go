package datadir

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

var identityTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// The bytes of format 1. If this test fails, directories made before can no
// longer be opened: raise Format instead of changing the golden file.
func TestFormatOneIsFrozen(t *testing.T) {
	id := Identity{
		ClusterID: "00112233-4455-4677-8899-aabbccddeeff",
		NodeID:    "ffeeddcc-bbaa-4988-b766-554433221100",
		Timeline:  0x0123456789abcdef,
		TokenKey:  bytes.Repeat([]byte{0xa5}, tokenKeyBytes),
		Shards:    4,
		Created:   identityTime,
	}
	golden, err := os.ReadFile(filepath.Join("testdata", "LIANA.v1"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := id.encode(); err != nil || !bytes.Equal(got, golden) {
		t.Errorf("encoded, %v:\n%s\nwant:\n%s", err, got, golden)
	}
	if got, err := decodeIdentity(golden); err != nil || !reflect.DeepEqual(got, id) {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

func mustOpen(t *testing.T, path string, opts Options) *Dir {
	t.Helper()
	d, err := Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustClose(t *testing.T, d *Dir) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// snapshot is the content of each file below path.
func snapshot(t *testing.T, path string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(path, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(b)
	}
	return files
}
