package shard

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/lianadb/liana/kv"
)

// golden compares bytes that lie on disk with testdata/name.hex. A change of
// these files is a change of format: stores of older versions no longer open.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	text, err := os.ReadFile(path)
	if os.Getenv("LIANA_GOLDEN") == "write" {
		text, err = []byte(hex.EncodeToString(got)+"\n"), nil
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(string(text)); hex.EncodeToString(got) != want {
		t.Errorf("%s:\n got %x\nwant %s", name, got, want)
	}
}

func testConfiguration() raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{ID: "n1-00000000000000ff", Address: "n1-00000000000000ff"}}}
}

func TestStoredFormsAreFrozen(t *testing.T) {
	golden(t, "entry_commands", logEntry{kind: kindCommands, term: 3, wall: 1_700_000_000_000_000, inTerm: 300,
		commands: [][]byte{[]byte("first"), {0, 0xff}}}.encode())
	golden(t, "entry_open", logEntry{kind: kindOpenTerm, wall: 1}.encode())
	golden(t, "entry_tick", logEntry{kind: kindTick, term: 1, wall: 2, inTerm: 1}.encode())
	golden(t, "applied", position{index: 1, term: 2, now: 3, elapsed: 4, termBase: 5,
		configurationIndex: 6, configuration: raft.EncodeConfiguration(testConfiguration())}.encode())
	golden(t, "replica", replicaRow{form: replicaFounded, number: 0x0102030405060708}.encode())
	golden(t, "stamp", stamp{incarnation: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, nodeID: "n1"}.encode())
	golden(t, "log", appendLog(nil, &raft.Log{Type: raft.LogCommand, Term: 300, Data: []byte("data"), Extensions: []byte("x")}))
	golden(t, "log_key", (&logStore{prefix: logPrefix(7, 0x0102030405060708)}).key(9))
	golden(t, "installed", installedRow{300, 2}.encode())
	golden(t, "applied_key", stateRowKey(stateApplied, 7))
}

func TestEntryDecodesToWhatWasEncoded(t *testing.T) {
	for _, e := range []logEntry{
		{kind: kindOpenTerm, wall: 5},
		{kind: kindTick, term: 1 << 40, wall: maxMicroseconds, inTerm: maxMicroseconds},
		{kind: kindCommands, term: 1, commands: [][]byte{{}, []byte("a"), make([]byte, 3000)}},
		{kind: kindCommands, commands: [][]byte{make([]byte, MaxCommand)}},
	} {
		got, err := decodeEntry(e.encode())
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("kind %d: %v", e.kind, err)
		}
	}
}

func TestEntryRefusesForeignBytes(t *testing.T) {
	good := logEntry{kind: kindCommands, term: 300, wall: 300, inTerm: 300, commands: [][]byte{[]byte("ab"), []byte("c")}}.encode()
	bad := map[string][]byte{
		"empty":            {},
		"version":          append([]byte{9}, good[1:]...),
		"kind 0":           append([]byte{1, 0}, good[2:]...),
		"kind 9":           append([]byte{1, 9}, good[2:]...),
		"tick with more":   append([]byte{1, byte(kindTick)}, good[2:]...),
		"trailing byte":    append(bytes.Clone(good), 0),
		"no command":       logEntry{kind: kindCommands}.encode(),
		"time too large":   logEntry{kind: kindTick, wall: maxMicroseconds + 1}.encode(),
		"count over bound": logEntry{kind: kindCommands, commands: make([][]byte, MaxEntryCommands+1)}.encode(),
		"command too long": logEntry{kind: kindCommands, commands: [][]byte{make([]byte, MaxCommand+1)}}.encode(),
	}
	for i := range good {
		bad["cut at "+string(rune('0'+i))] = good[:i]
	}
	for name, b := range bad {
		if _, err := decodeEntry(b); !errors.Is(err, kv.ErrCorruption) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(logEntry{kind: kindCommands, term: 3, wall: 9, inTerm: 1, commands: [][]byte{[]byte("a"), nil}}.encode())
	f.Add(logEntry{kind: kindOpenTerm, wall: 1}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEntry(b)
		if err != nil {
			if !errors.Is(err, kv.ErrCorruption) {
				t.Fatalf("unmarked error %v", err)
			}
			return
		}
		again, err := decodeEntry(e.encode())
		if err != nil || !reflect.DeepEqual(e, again) {
			t.Fatalf("%x does not survive a second coding: %v", b, err)
		}
	})
}

func FuzzDecodeRows(f *testing.F) {
	f.Add(position{index: 1, term: 1, configuration: raft.EncodeConfiguration(testConfiguration())}.encode())
	f.Add(appendLog(nil, &raft.Log{Type: raft.LogConfiguration, Term: 1, Data: raft.EncodeConfiguration(testConfiguration())}))
	f.Add(replicaRow{number: 1}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err1 := decodePosition(b)
		_, err2 := decodeReplicaRow(b)
		_, err3 := decodeStamp(b)
		var log raft.Log
		err4 := decodeLog(b, 1, &log)
		_, err5 := decodeInstalled(b)
		for _, err := range []error{err1, err2, err3, err4, err5} {
			if err != nil && !errors.Is(err, kv.ErrCorruption) {
				t.Fatalf("unmarked error %v", err)
			}
		}
	})
}
