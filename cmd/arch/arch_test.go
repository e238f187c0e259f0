package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/lianadb/liana"
	root   = "../.."
)

// layer is one package and what it may import. A name that ends in "/..." means
// the package and all below it, "..." every package but other commands.
type layer struct {
	pkg     string   // within the module
	imports []string // within the module, not counting tests
}

// layers is the import table, from the bottom up. Every package of the module
// has a row, and every row a package.
var layers = []layer{
	{"edgelist", nil},
	{"kv", nil},
	{"kv/kvtest", []string{"kv"}},
	{"kv/pebblekv", []string{"kv"}},
	{"kv/shard", []string{"kv"}},
	{"kv/counter", []string{"kv"}},
	{"kv/datadir", []string{"kv"}},
	{"kv/catalog", []string{"kv", "kv/shard"}},
	{"graph", []string{"edgelist", "kv", "kv/shard", "kv/counter"}},
	{"cache", nil},
	{"cache/cachetest", []string{"cache"}},
	{"cache/rediscache", []string{"cache"}},
	{"proto/liana/v1", nil},
	{"proto/peer/v1", nil},
	{"server/web/gateway", []string{"proto/liana/v1"}},
	{"server/web", []string{"proto/liana/v1", "server/web/gateway"}},
	{"server", []string{"edgelist", "kv", "kv/shard", "kv/counter", "graph", "cache", "proto/...", "server/resp", "server/web"}},
	{"server/resp", []string{"graph", "kv/counter"}},
	{"server/peer", []string{"edgelist", "kv", "kv/shard", "kv/counter", "graph", "proto/peer/v1"}},
	{"server/sink", []string{"graph"}},
	{"server/tiers", []string{"edgelist", "graph", "cache", "cache/rediscache", "proto/...", "server", "server/peer"}},
	{"server/cluster", []string{"kv", "kv/shard", "kv/catalog", "graph", "proto/...", "server", "server/peer"}},
	{"docs/examples/go", []string{"proto/liana/v1"}},
	{"cmd/arch", nil},
	{"cmd/lianad/...", []string{"..."}},
	{"cmd/liana/...", []string{"..."}},
	{"cmd/lianabench/...", []string{"..."}},
}

// owner says who may import a third-party module. testsOf may do so in their
// tests only.
type owner struct {
	path    string // import path prefix
	pkgs    []string
	testsOf []string
}

// owners lists every third-party module that the module may import directly. A
// new dependency needs a row here, and so somebody who answers for it.
var owners = []owner{
	{"github.com/cockroachdb/pebble/v2", []string{"kv/pebblekv"}, nil},
	{"github.com/hashicorp/raft", []string{"kv/shard"}, nil},
	{"github.com/hashicorp/raft-boltdb/v2", []string{"kv/shard"}, nil},
	{"github.com/hashicorp/go-hclog", []string{"kv/shard"}, nil},
	{"github.com/hashicorp/go-metrics", []string{"kv/shard"}, nil},
	{"go.etcd.io/bbolt", []string{"kv/shard"}, nil},
	{"github.com/redis/go-redis/v9", []string{"cache/rediscache", "server/sink", "cmd/lianad/...", "cmd/lianabench/..."}, nil},
	{"github.com/maypok86/otter/v2", []string{"cache"}, nil},
	{"github.com/jackc/pgx/v5", []string{"cmd/lianabench/..."}, nil},
	{"github.com/HdrHistogram/hdrhistogram-go", []string{"cmd/lianabench/..."}, nil},
	{"github.com/tidwall/redcon", []string{"server/..."}, nil},
	{"github.com/prometheus/client_golang", []string{"server/..."}, nil},
	{"github.com/prometheus/client_model", []string{"server/..."}, nil},
	{"google.golang.org/grpc", []string{"proto/...", "server/...", "cmd/...", "docs/..."}, nil},
	{"google.golang.org/protobuf", []string{"proto/...", "server/...", "cmd/..."}, nil},
	{"google.golang.org/genproto", []string{"server/...", "cmd/...", "docs/..."}, nil},
	{"google.golang.org/genproto/googleapis/api", []string{"proto/...", "server/web/..."}, nil},
	{"github.com/grpc-ecosystem/grpc-gateway/v2", []string{"server/web/..."}, nil},
	{"github.com/spf13/cobra", []string{"cmd/..."}, nil},
	{"github.com/spf13/pflag", []string{"cmd/..."}, nil},
	{"go.yaml.in/yaml/v3", []string{"kv/datadir", "graph", "server/...", "cmd/..."}, nil},
	{"github.com/google/btree", []string{"..."}, nil},
	{"github.com/cespare/xxhash/v2", []string{"..."}, nil},
	{"golang.org/x/sync", []string{"..."}, nil},
	{"golang.org/x/sys", []string{"..."}, nil},
	{"go.uber.org/goleak", nil, []string{"..."}},
	{"github.com/cockroachdb/datadriven", nil, []string{"..."}},
	{"github.com/anishathalye/porcupine", nil, []string{"..."}},
}

// unreachable names what a package must not pull in by any path.
var unreachable = []struct {
	pkg     string
	modules []string
}{
	{"edgelist", []string{"github.com/cockroachdb/pebble/v2", "github.com/hashicorp/raft", "google.golang.org/grpc", "google.golang.org/protobuf"}},
	{"graph", []string{"github.com/cockroachdb/pebble/v2", "github.com/redis/go-redis/v9", "google.golang.org/grpc", "google.golang.org/protobuf"}},
	{"server", []string{"github.com/cockroachdb/pebble/v2", "github.com/redis/go-redis/v9"}},
	{"proto/liana/v1", []string{"github.com/grpc-ecosystem/grpc-gateway/v2"}}, // clients import it
}

// topLevel is what may lie at the top of the tree, beside dot-files.
var topLevel = []string{
	"cmd", "graph", "edgelist", "kv", "cache", "server", "proto", // the code
	"docs", "LICENSE", "README.md", "Makefile", "go.mod", "go.sum",
	"bin", "bench-out", "liana-data", // made here, never committed
}

// listed is what `go list -json` says about a package.
type listed struct {
	ImportPath   string
	Dir          string
	Export       string
	Standard     bool
	GoFiles      []string
	Imports      []string
	Deps         []string
	TestImports  []string
	XTestImports []string
}

func (p listed) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// goList runs `go list` over the whole module with the flags given.
func goList(flags ...string) (map[string]listed, error) {
	args := append([]string{"list", "-json=ImportPath,Dir,Export,Standard,GoFiles,Imports,Deps,TestImports,XTestImports"}, flags...)
	cmd := exec.Command("go", append(args, "./...")...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(stderr.String()))
	}
	pkgs := map[string]listed{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		pkgs[p.name()] = p
	}
}

// modulePackages is the result of one `go list` that the tests share.
var modulePackages = sync.OnceValues(func() (map[string]listed, error) { return goList() })

func listModule(t *testing.T) map[string]listed {
	t.Helper()
	pkgs, err := modulePackages()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return pkgs
}

// matches reports whether one of the patterns covers name.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if p == "..." || p == name {
			return true
		}
		base, tree := strings.CutSuffix(p, "/...")
		return tree && within(name, base)
	})
}

// within reports whether path is base or lies below it.
func within(path, base string) bool {
	return path == base || strings.HasPrefix(path, base+"/")
}

// ownerOf finds the row of a third-party import: the longest that covers it.
func ownerOf(path string) (owner, bool) {
	var best owner
	for _, o := range owners {
		if within(path, o.path) && len(o.path) > len(best.path) {
			best = o
		}
	}
	return best, best.path != ""
}

func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// layerOf finds the row of a package.
func layerOf(name string) (layer, bool) {
	i := slices.IndexFunc(layers, func(l layer) bool { return matches([]string{l.pkg}, name) })
	if i < 0 {
		return layer{}, false
	}
	return layers[i], true
}

func TestEveryPackageHasItsRowAndEveryRowItsPackage(t *testing.T) {
	pkgs := listModule(t)
	for _, l := range layers {
		name := strings.TrimSuffix(l.pkg, "/...")
		if _, ok := pkgs[name]; !ok {
			t.Errorf("package %s has vanished: bring it back, or take its row and what DESIGN.md files say about it away", name)
		}
	}
	for name := range pkgs {
		if _, ok := layerOf(name); !ok {
			t.Errorf("package %s has no row in the import table", name)
		}
	}
}

func TestImportsFollowTheTable(t *testing.T) {
	for name, p := range listModule(t) {
		l, _ := layerOf(name)
		for _, imp := range p.Imports {
			checkImport(t, name, l.imports, imp, false)
		}
		for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
			checkImport(t, name, l.imports, imp, true)
		}
	}
}

// checkImport judges one direct import of package name. Tests may use any
// package of the module, so as to run against real engines; a command belongs to
// nobody but itself.
func checkImport(t *testing.T, name string, allowed []string, imp string, inTest bool) {
	t.Helper()
	if isStandard(imp) {
		return
	}
	if within(imp, module) {
		target := strings.TrimPrefix(imp, module+"/")
		if within(target, "cmd") && command(target) != command(name) {
			t.Errorf("%s imports %s, part of another command", name, target)
		} else if !inTest && !matches(allowed, target) {
			t.Errorf("%s imports %s; it may import %v", name, target, allowed)
		}
		return
	}
	o, ok := ownerOf(imp)
	if !ok {
		t.Errorf("%s imports %s: no row in owners; is the dependency worth having?", name, imp)
		return
	}
	if !matches(o.pkgs, name) && !(inTest && matches(o.testsOf, name)) {
		t.Errorf("%s imports %s (test: %v); that belongs to %v", name, imp, inTest, o.pkgs)
	}
}

// command is the first two parts of a package's name: cmd/liana of cmd/liana/x.
func command(name string) string {
	parts := strings.SplitN(name, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

func TestDependenciesStayOutOfReach(t *testing.T) {
	pkgs := listModule(t)
	for _, u := range unreachable {
		for _, dep := range pkgs[u.pkg].Deps {
			for _, m := range u.modules {
				if within(dep, m) {
					t.Errorf("%s reaches %s", u.pkg, dep)
				}
			}
		}
	}
}

func TestTopLevelIsFixed(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, ".") && !slices.Contains(topLevel, name) {
			t.Errorf("%s does not belong at the top of the tree", name)
		}
	}
}

// sourceFiles calls f with each file of the tree that people write, by its path
// from the top. Generated code, test data and build output are left out.
func sourceFiles(t *testing.T, f func(path string, content []byte)) {
	t.Helper()
	skipped := []string{".git", "bin", "bench-out", "liana-data", "testdata", "node_modules"}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains(skipped, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !isSource(path) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f(filepath.ToSlash(rel), content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isSource(path string) bool {
	if strings.HasSuffix(path, ".pb.go") || strings.HasSuffix(path, ".pb.gw.go") {
		return false
	}
	switch filepath.Ext(path) {
	case ".go", ".md", ".proto", ".yaml", ".yml", ".html", ".css", ".js", ".lua":
		return true
	}
	return filepath.Base(path) == "Makefile" || filepath.Base(filepath.Dir(path)) == ".ci"
}
