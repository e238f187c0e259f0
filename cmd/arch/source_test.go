package arch

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checked is one package of the module, without its tests, with types.
type checked struct {
	name  string
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info

	findings []string
}

// find records what is wrong with n.
func (c *checked) find(n ast.Node, format string, args ...any) {
	p := c.fset.Position(n.Pos())
	where := fmt.Sprintf("%s:%d: ", path.Join(c.name, filepath.Base(p.Filename)), p.Line)
	c.findings = append(c.findings, where+fmt.Sprintf(format, args...))
}

// check runs every rule over the package.
func (c *checked) check() []string {
	for _, file := range c.files {
		c.checkUses(file)
		c.checkDeclarations(file)
		c.checkChanges(file)
	}
	return c.findings
}

// compiled lists the module and all that it stands on, with an importer of their
// export data.
func compiled(t *testing.T, fset *token.FileSet) (map[string]listed, types.Importer) {
	t.Helper()
	pkgs, err := goList("-deps", "-export")
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports := map[string]string{}
	for _, p := range pkgs {
		exports[p.ImportPath] = p.Export
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	return pkgs, importer.ForCompiler(fset, "gc", open)
}

// typeCheck loads every package that people write.
func typeCheck(t *testing.T) []*checked {
	t.Helper()
	fset := token.NewFileSet()
	pkgs, imp := compiled(t, fset)
	var all []*checked
	for name, p := range pkgs {
		if !within(p.ImportPath, module) || within(name, "proto") {
			continue
		}
		var sources []string
		for _, f := range p.GoFiles {
			sources = append(sources, filepath.Join(p.Dir, f))
		}
		c, err := newChecked(name, fset, imp, sources)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

func newChecked(name string, fset *token.FileSet, imp types.Importer, sources []string) (*checked, error) {
	c := &checked{name: name, fset: fset, info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
	}}
	for _, source := range sources {
		file, err := parser.ParseFile(fset, source, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c.files = append(c.files, file)
	}
	conf := types.Config{Importer: imp}
	_, err := conf.Check(module+"/"+name, fset, c.files, c.info)
	return c, err
}

// used is the name of a function or variable that an identifier stands for, with
// its import path: "os.Exit". Methods and locals have none.
func (c *checked) used(id *ast.Ident) string {
	obj := c.info.Uses[id]
	if obj == nil {
		return ""
	}
	if _, builtin := obj.(*types.Builtin); builtin {
		return obj.Name()
	}
	if obj.Pkg() == nil || obj.Parent() != obj.Pkg().Scope() {
		return ""
	}
	return obj.Pkg().Path() + "." + obj.Name()
}

// bans are the names that most of the code may not use, and what to do instead.
var bans = []struct {
	names   []string
	applies func(file string) bool // by path from the top
	instead string
}{
	{
		names:   []string{"os.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln", "log.Panic", "log.Panicf", "log.Panicln"},
		applies: func(file string) bool { return !within(file, "cmd") && !within(file, "docs") },
		instead: "return an error: only a command ends the process",
	},
	{
		names:   []string{"log.Print", "log.Printf", "log.Println", "fmt.Print", "fmt.Printf", "fmt.Println", "log/slog.Default", "log/slog.SetDefault"},
		applies: func(file string) bool { return !within(file, "docs") }, // examples show what they did
		instead: "take a *slog.Logger or an io.Writer",
	},
	{
		names: []string{
			"time.Now", "time.Since", "time.Until", "time.After", "time.Sleep", "time.NewTimer", "time.NewTicker", "time.AfterFunc",
			"os.Getenv", "os.Hostname", "os.Getpid", "runtime.NumCPU", "runtime.NumGoroutine",
		},
		applies: isDeterministic,
		instead: "take it from the log entry: replicas must agree",
	},
}

// panics names the functions that end the process on purpose, and why.
var panics = map[string]string{
	"kv/pebblekv/events.go:events.Fatalf": "the engine calls it where it cannot go on, and relies on it not to return",
	"kv/pebblekv/store.go:openDB":         "hands on a panic that it does not understand",
}

// isDeterministic reports whether a file belongs to a replicated state machine,
// or to the pure code under it: same entries, same state, on every replica.
func isDeterministic(file string) bool {
	base := path.Base(file)
	return within(file, "edgelist") || within(file, "kv/counter") ||
		within(file, "graph") && (strings.HasPrefix(base, "machine") || strings.HasPrefix(base, "apply"))
}

func TestCodeKeepsTheRules(t *testing.T) {
	for _, c := range typeCheck(t) {
		for _, finding := range c.check() {
			t.Error(finding)
		}
	}
}

// checkUses looks for banned names, for panics that are no assertion, and in
// deterministic files for randomness and the order of maps.
func (c *checked) checkUses(file *ast.File) {
	name := path.Join(c.name, filepath.Base(c.fset.Position(file.Pos()).Filename))
	function, sorted := "", map[*ast.RangeStmt]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			function = name + ":" + functionName(n)
		case *ast.Ident:
			c.checkName(n, name)
		case *ast.CallExpr:
			id, ok := n.Fun.(*ast.Ident)
			if ok && c.used(id) == "panic" && !isAssertion(n) && panics[function] == "" {
				c.find(n, `panic: return an error, or, for what only a bug can cause, panic("bug: …")`)
			}
		case *ast.BlockStmt:
			c.markSorted(n.List, sorted)
		case *ast.RangeStmt:
			_, overMap := c.info.Types[n.X].Type.Underlying().(*types.Map)
			if overMap && isDeterministic(name) && !sorted[n] && !c.remarked(file, n, "any order:") {
				c.find(n, `range over a map: sort, or say why it does not matter: "// any order: …"`)
			}
		}
		return true
	})
}

// markSorted finds the ranges whose next statement sorts: what they collected has
// one order again.
func (c *checked) markSorted(list []ast.Stmt, sorted map[*ast.RangeStmt]bool) {
	for i, stmt := range list[:max(0, len(list)-1)] {
		loop, ok := stmt.(*ast.RangeStmt)
		next, isExpr := list[i+1].(*ast.ExprStmt)
		if !ok || !isExpr {
			continue
		}
		if call, ok := next.X.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(c.used(sel.Sel), "slices.Sort") {
				sorted[loop] = true
			}
		}
	}
}

func (c *checked) checkName(id *ast.Ident, file string) {
	use := c.used(id)
	for _, b := range bans {
		if slices.Contains(b.names, use) && b.applies(file) {
			c.find(id, "%s: %s", use, b.instead)
		}
	}
	if isDeterministic(file) && (strings.HasPrefix(use, "math/rand") || strings.HasPrefix(use, "crypto/rand")) {
		c.find(id, "%s: take it from the log entry: replicas must agree", use)
	}
}

// isAssertion reports whether a panic says that it found a bug.
func isAssertion(call *ast.CallExpr) bool {
	bug := false
	ast.Inspect(call.Args[0], func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			bug = bug || strings.HasPrefix(strings.Trim(lit.Value, "\"`"), "bug: ")
		}
		return true
	})
	return bug
}

// remarked reports whether a comment with the mark stands on the line of n or
// ends on the line above.
func (c *checked) remarked(file *ast.File, n ast.Node, mark string) bool {
	line := c.fset.Position(n.Pos()).Line
	return slices.ContainsFunc(file.Comments, func(g *ast.CommentGroup) bool {
		end := c.fset.Position(g.End()).Line
		return (end == line || end == line-1) && strings.Contains(g.Text(), mark)
	})
}

// checkDeclarations looks for init functions and for package variables that can
// only be there to be changed.
func (c *checked) checkDeclarations(file *ast.File) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				c.find(d, "func init: do it in a constructor")
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
					c.checkVariable(d, v)
				}
			}
		}
	}
}

func (c *checked) checkVariable(d *ast.GenDecl, v *ast.ValueSpec) {
	embedded := func(g *ast.CommentGroup) bool {
		return g != nil && slices.ContainsFunc(g.List, func(l *ast.Comment) bool { return strings.HasPrefix(l.Text, "//go:embed") })
	}
	for _, id := range v.Names {
		if id.Name == "_" || embedded(d.Doc) || embedded(v.Doc) {
			continue
		}
		typ := c.info.Defs[id].Type()
		if len(v.Values) == 0 {
			c.find(id, "package variable %s without a value: put it in a struct", id.Name)
		} else if held := mutableType(typ, nil); held != "" {
			c.find(id, "package variable %s holds a %s: put it in a struct", id.Name, held)
		}
	}
}

// mutableType names a type made to be changed (a lock, an atomic, a channel)
// that lies within typ.
func mutableType(typ types.Type, seen []types.Type) string {
	if slices.Contains(seen, typ) {
		return ""
	}
	seen = append(seen, typ)
	if named, ok := types.Unalias(typ).(*types.Named); ok && named.Obj().Pkg() != nil {
		switch named.Obj().Pkg().Path() {
		case "sync", "sync/atomic":
			return named.String()
		case "regexp", "errors", "time", "reflect", "text/template", "html/template":
			return "" // not changed by use, whatever they hold
		}
	}
	switch u := typ.Underlying().(type) {
	case *types.Chan:
		return "channel"
	case *types.Pointer:
		return mutableType(u.Elem(), seen)
	case *types.Struct:
		for i := range u.NumFields() {
			if held := mutableType(u.Field(i).Type(), seen); held != "" {
				return held
			}
		}
	}
	return ""
}

// checkChanges looks for package variables that are assigned, incremented,
// emptied or lent out by address after their declaration.
func (c *checked) checkChanges(file *ast.File) {
	changed := func(target ast.Expr) {
		id := c.base(target)
		if id == nil {
			return
		}
		if v, ok := c.info.Uses[id].(*types.Var); ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
			c.find(id, "package variable %s is changed: put it in a struct", id.Name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				changed(l)
			}
		case *ast.IncDecStmt:
			changed(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				changed(n.X)
			}
		case *ast.CallExpr:
			id, ok := n.Fun.(*ast.Ident)
			if ok && slices.Contains([]string{"delete", "clear", "copy"}, c.used(id)) {
				changed(n.Args[0])
			}
		}
		return true
	})
}

// base is the variable that a change of e changes: v of v, v[i], v.f and *v; of
// pkg.V it is V.
func (c *checked) base(e ast.Expr) *ast.Ident {
	switch e := e.(type) {
	case *ast.Ident:
		return e
	case *ast.IndexExpr:
		return c.base(e.X)
	case *ast.StarExpr:
		return c.base(e.X)
	case *ast.ParenExpr:
		return c.base(e.X)
	case *ast.SliceExpr:
		return c.base(e.X)
	case *ast.SelectorExpr:
		if id, ok := e.X.(*ast.Ident); ok {
			if _, isPackage := c.info.Uses[id].(*types.PkgName); isPackage {
				return e.Sel
			}
		}
		return c.base(e.X)
	}
	return nil
}

// TestRulesAreNoticed runs the rules over a file that breaks each of them. The
// file says where, and with which words.
func TestRulesAreNoticed(t *testing.T) {
	const source = "testdata/machine_bad.go"
	fset := token.NewFileSet()
	_, imp := compiled(t, fset)
	c, err := newChecked("graph", fset, imp, []string{source})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	findings := c.check()
	for i, line := range strings.Split(string(content), "\n") {
		where := fmt.Sprintf("graph/machine_bad.go:%d: ", i+1)
		at := slices.IndexFunc(findings, func(f string) bool { return strings.HasPrefix(f, where) })
		_, want, wanted := strings.Cut(line, "// want: ")
		switch {
		case wanted && at < 0:
			t.Errorf("%snothing found, want %q", where, want)
		case wanted && !strings.Contains(findings[at], want):
			t.Errorf("%q, want %q", findings[at], want)
		case !wanted && at >= 0:
			t.Errorf("found what is allowed: %s", findings[at])
		}
	}
}
