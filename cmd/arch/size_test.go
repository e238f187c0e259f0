package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

const (
	maxFileLines     = 600
	maxFunctionLines = 70
)

// tooLong is the ratchet: functions over the limit, with their present length
// and why they are so long. A row goes when its function is short enough; a
// function that got shorter lowers its row. Rows are not added for comfort: a
// long function is usually two.
var tooLong = map[string]struct {
	lines  int
	reason string
}{}

// isTestCode reports whether a file is a test or belongs to a suite of them, such
// as kv/kvtest.
func isTestCode(file string) bool {
	return strings.HasSuffix(file, "_test.go") || strings.HasSuffix(path.Dir(file), "test")
}

func TestFilesAreShort(t *testing.T) {
	sourceFiles(t, func(file string, content []byte) {
		if !strings.HasSuffix(file, ".go") || isTestCode(file) {
			return
		}
		if n := bytes.Count(content, []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines, the limit is %d: split it by noun", file, n, maxFileLines)
		}
	})
}

func TestFunctionsAreShort(t *testing.T) {
	found := map[string]bool{}
	sourceFiles(t, func(file string, content []byte) {
		if !strings.HasSuffix(file, ".go") || isTestCode(file) {
			return
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, content, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1
			name := file + ":" + functionName(f)
			row, excused := tooLong[name]
			found[name] = true
			switch {
			case excused && lines <= maxFunctionLines:
				t.Errorf("%s is short enough now (%d lines): take its row away", name, lines)
			case excused && lines < row.lines:
				t.Errorf("%s has %d lines: lower its row from %d", name, lines, row.lines)
			case excused && lines > row.lines:
				t.Errorf("%s grew from %d to %d lines: it may only shrink", name, row.lines, lines)
			case !excused && lines > maxFunctionLines:
				t.Errorf("%s has %d lines, the limit is %d: split it", name, lines, maxFunctionLines)
			}
		}
	})
	for name, row := range tooLong {
		if !found[name] {
			t.Errorf("%s is gone: take its row away", name)
		}
		if row.reason == "" {
			t.Errorf("%s has no reason", name)
		}
	}
}

// functionName is the name that a row of tooLong uses: Func, or Type.Method.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	recv := f.Recv.List[0].Type
	if star, ok := recv.(*ast.StarExpr); ok {
		recv = star.X
	}
	switch generic := recv.(type) {
	case *ast.IndexExpr:
		recv = generic.X
	case *ast.IndexListExpr:
		recv = generic.X
	}
	return fmt.Sprintf("%s.%s", recv, f.Name.Name)
}
