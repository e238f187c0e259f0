package datadir

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lianadb/liana/kv"
)

func TestOpenCreatesOnceAndFindsTheSameIdentityAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "data")
	d := mustOpen(t, path, Options{})
	first := d.Identity()
	if first.Shards != DefaultShards || len(first.TokenKey) != tokenKeyBytes || first.ClusterID == first.NodeID {
		t.Errorf("identity %+v", first)
	}
	for _, p := range []string{d.StatePath(), d.LogPath(), d.StablePath()} {
		if filepath.Dir(p) != path {
			t.Errorf("%s does not lie in %s", p, path)
		}
	}
	mustClose(t, d)

	d = mustOpen(t, path, Options{Shards: DefaultShards})
	defer mustClose(t, d)
	if !reflect.DeepEqual(d.Identity(), first) {
		t.Errorf("second open: %+v, first: %+v", d.Identity(), first)
	}
}

func TestTwoDirectoriesShareNothing(t *testing.T) {
	a, b := mustOpen(t, t.TempDir(), Options{Shards: 1}), mustOpen(t, t.TempDir(), Options{Shards: 1})
	defer mustClose(t, a)
	defer mustClose(t, b)
	x, y := a.Identity(), b.Identity()
	if x.ClusterID == y.ClusterID || x.NodeID == y.NodeID || x.Timeline == y.Timeline || bytes.Equal(x.TokenKey, y.TokenKey) {
		t.Errorf("%+v and %+v", x, y)
	}
}

func TestTheTokenKeyIsReadableByItsOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	mustClose(t, mustOpen(t, path, Options{}))
	for name, want := range map[string]os.FileMode{".": 0o700, identityFile: 0o600} {
		info, err := os.Stat(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", name, got, want)
		}
	}
}

// Each refusal names the directory and what to do, and leaves all as it was.
func TestOpenRefuses(t *testing.T) {
	valid := func(t *testing.T, path string) { mustClose(t, mustOpen(t, path, Options{Shards: 2})) }
	edit := func(from, to string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			valid(t, path)
			file := filepath.Join(path, identityFile)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(b), from) {
				t.Fatalf("no %q to edit", from)
			}
			write(t, file, strings.Replace(string(b), from, to, 1))
		}
	}
	content := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, path string) { write(t, filepath.Join(path, name), text) }
	}
	cases := []struct {
		name    string
		prepare func(t *testing.T, path string)
		opts    Options
		is      error
		says    string
	}{
		{"another format", edit(`"format": 1`, `"format": 2`), Options{}, ErrFormat, "format 2"},
		{"another format with other keys", content(identityFile, `{"format": 7, "nodes": []}`), Options{}, ErrFormat, "format 7"},
		{"unknown key", edit(`"shards"`, `"shads"`), Options{}, kv.ErrCorruption, `unknown field "shads"`},
		{"other number of shards", valid, Options{Shards: 3}, ErrShards, "has 2, asked for were 3"},
		{"foreign directory", content("photo.jpg", "x"), Options{}, ErrForeign, `"photo.jpg"`},
		{"data without identity", content("raft.db", "x"), Options{}, ErrForeign, `"raft.db"`},
		{"empty identity", content(identityFile, ""), Options{}, kv.ErrCorruption, "JSON"},
		{"identity cut short", content(identityFile, `{"format": 1, "cluster_id": "`), Options{}, kv.ErrCorruption, "JSON"},
		{"no format", content(identityFile, `{"shards": 2}`), Options{}, kv.ErrCorruption, "no format"},
		{"bad cluster id", edit(`"cluster_id": "`, `"cluster_id": "x`), Options{}, kv.ErrCorruption, "cluster_id"},
		{"bad timeline", edit(`"timeline": "`, `"timeline": "x`), Options{}, kv.ErrCorruption, "timeline"},
		{"short token key", edit(`"token_key": "`, `"token_key": "AAAA`), Options{}, kv.ErrCorruption, "token_key"},
		{"no shards", edit(`"shards": 2`, `"shards": 0`), Options{}, kv.ErrCorruption, "shards"},
		{"shards as text", edit(`"shards": 2`, `"shards": "2"`), Options{}, kv.ErrCorruption, "shards has the wrong type"},
		{"more after it", edit("\n}\n", "\n}\n{}"), Options{}, kv.ErrCorruption, "JSON"},
		{"read-only, empty", func(*testing.T, string) {}, Options{ReadOnly: true}, ErrAbsent, "lianad start"},
		{"too many shards", valid, Options{Shards: MaxShards + 1}, nil, "4096"},
		{"negative shards", valid, Options{Shards: -1}, nil, "1 to"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := t.TempDir()
			c.prepare(t, path)
			before := snapshot(t, path)
			_, err := Open(path, c.opts)
			if err == nil {
				t.Fatal("opened")
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
			if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("%q does not say %q and %q", err, c.says, path)
			}
			after := snapshot(t, path)
			delete(after, lockFile) // a lock taken and given back may stay
			delete(before, lockFile)
			if !reflect.DeepEqual(before, after) {
				t.Errorf("before: %v\nafter: %v", before, after)
			}
		})
	}
}

func TestNoErrorQuotesTheSecret(t *testing.T) {
	path := t.TempDir()
	d := mustOpen(t, path, Options{})
	file := filepath.Join(path, identityFile)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
	_, key, _ := strings.Cut(string(b), `"token_key": "`)
	key = key[:20]
	for i := range b {
		broken := bytes.Clone(b)
		broken[i] ^= 0x05
		write(t, file, string(broken))
		d, err := Open(path, Options{})
		if err == nil {
			d.Close()
			continue
		}
		if strings.Contains(err.Error(), key[:8]) || strings.Contains(err.Error(), key[8:16]) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
}

func TestAFileInTheWayIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "x")
	if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), "it is a file") {
		t.Errorf("error %v", err)
	}
}

func TestACreationCutShortIsTakenUpAgain(t *testing.T) {
	path := t.TempDir()
	write(t, filepath.Join(path, lockFile), "")
	write(t, filepath.Join(path, draftFile), `{"format": 1, "clus`)
	mustClose(t, mustOpen(t, path, Options{}))
	mustClose(t, mustOpen(t, path, Options{ReadOnly: true}))
}

func TestASecondOpenIsRefusedAndNamesTheProcess(t *testing.T) {
	path := t.TempDir()
	d := mustOpen(t, path, Options{})
	for _, opts := range []Options{{}, {ReadOnly: true}} {
		_, err := Open(path, opts)
		if !errors.Is(err, kv.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	mustClose(t, d)

	a, b := mustOpen(t, path, Options{ReadOnly: true}), mustOpen(t, path, Options{ReadOnly: true})
	if _, err := Open(path, Options{}); !errors.Is(err, kv.ErrLocked) {
		t.Errorf("beside readers: %v", err)
	}
	mustClose(t, a)
	mustClose(t, b)
	mustClose(t, mustOpen(t, path, Options{}))
}

// The lock goes with the process, and the name that it leaves behind is not
// given as the holder's.
func TestAKilledProcessLeavesNoLock(t *testing.T) {
	path := os.Getenv("DATADIR_TEST_HOLD")
	if path != "" {
		mustOpen(t, path, Options{})
		fmt.Println("held")
		select {}
	}
	path = t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestAKilledProcessLeavesNoLock$")
	cmd.Env = append(os.Environ(), "DATADIR_TEST_HOLD="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	_, err = Open(path, Options{})
	if !errors.Is(err, kv.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", cmd.Process.Pid)) {
		t.Errorf("while it runs: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	reader := mustOpen(t, path, Options{ReadOnly: true})
	if _, err := Open(path, Options{}); !errors.Is(err, kv.ErrLocked) || strings.Contains(err.Error(), "process "+fmt.Sprint(cmd.Process.Pid)) {
		t.Errorf("beside a reader: %v", err)
	}
	mustClose(t, reader)
	mustClose(t, mustOpen(t, path, Options{}))
}

func FuzzDecodeIdentity(f *testing.F) {
	b, err := newIdentity(4, identityTime).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := decodeIdentity(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, kv.ErrCorruption) {
				t.Fatalf("unclassed error %v", err)
			}
			return
		}
		again, err := id.encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeIdentity(again); err != nil || !got.Created.Equal(id.Created) || got.Timeline != id.Timeline {
			t.Fatalf("%+v became %+v, %v", id, got, err)
		}
	})
}
