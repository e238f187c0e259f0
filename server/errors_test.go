package server

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lianadb/liana/edgelist"
	"github.com/lianadb/liana/graph"
	"github.com/lianadb/liana/kv"
	"github.com/lianadb/liana/kv/shard"
)

// errorRows says for each exported error of the packages below what a client
// gets.
var errorRows = map[string]struct {
	err       error
	code      codes.Code
	reason    string
	retryable bool
}{
	"graph.ErrInverseLate":       {graph.ErrInverseLate, codes.Aborted, "INVERSE_PENDING", false},
	"graph.ErrBacklogged":        {graph.ErrBacklogged, codes.Unavailable, "BACKLOGGED", true},
	"graph.ErrOldTimeline":       {graph.ErrOldTimeline, codes.FailedPrecondition, "OLD_TIMELINE", false},
	"graph.ErrTrimmed":           {graph.ErrTrimmed, codes.OutOfRange, "CHANGES_TRIMMED", false},
	"graph.ErrTooFresh":          {graph.ErrTooFresh, codes.Unavailable, "NOT_FRESH", true},
	"graph.ErrUnreachable":       {graph.ErrUnreachable, codes.Unavailable, "UNREACHABLE", true},
	"graph.ErrCut":               {graph.ErrCut, codes.Unavailable, "CONNECTION_LOST", true},
	"graph.ErrNoEdge":            {graph.ErrNoEdge, codes.NotFound, "NO_EDGE", false},
	"graph.ErrOverflow":          {graph.ErrOverflow, codes.OutOfRange, "OVERFLOW", false},
	"graph.ErrDerived":           {graph.ErrDerived, codes.FailedPrecondition, "DERIVED_METRIC", false},
	"graph.ErrDedupeFull":        {graph.ErrDedupeFull, codes.ResourceExhausted, "DEDUPE_FULL", true},
	"graph.ErrRequestIDReused":   {graph.ErrRequestIDReused, codes.FailedPrecondition, "REQUEST_ID_REUSED", false},
	"graph.ErrIDTooOld":          {graph.ErrIDTooOld, codes.FailedPrecondition, "REQUEST_ID_TOO_OLD", false},
	"graph.ErrDiskFull":          {graph.ErrDiskFull, codes.ResourceExhausted, "DISK_FULL", true},
	"graph.ErrOldProgram":        {graph.ErrOldProgram, codes.Unavailable, "OLD_PROGRAM", true},
	"graph.ErrDeleting":          {graph.ErrDeleting, codes.FailedPrecondition, "VERTEX_DELETING", false},
	"graph.ErrHidden":            {graph.ErrHidden, codes.FailedPrecondition, "VERTEX_HIDDEN", false},
	"graph.ErrTooManyJobs":       {graph.ErrTooManyJobs, codes.ResourceExhausted, "TOO_MANY_JOBS", true},
	"graph.ErrNoSplit":           {graph.ErrNoSplit, codes.FailedPrecondition, "NO_SPLIT", false},
	"graph.ErrSchema":            {graph.ErrSchema, codes.InvalidArgument, "SCHEMA", false},
	"edgelist.ErrCorrupt":        {edgelist.ErrCorrupt, codes.DataLoss, "CORRUPTION", false},
	"edgelist.ErrPropsTooLarge":  {edgelist.ErrPropsTooLarge, codes.InvalidArgument, "INVALID_FIELD", false},
	"edgelist.ErrFull":           {edgelist.ErrFull, codes.ResourceExhausted, "LIST_FULL", false},
	"kv.ErrNotFound":             {kv.ErrNotFound, codes.Internal, "INTERNAL", false},
	"kv.ErrClosed":               {kv.ErrClosed, codes.Unavailable, "STOPPING", true},
	"kv.ErrLocked":               {kv.ErrLocked, codes.Internal, "INTERNAL", false},
	"kv.ErrCorruption":           {kv.ErrCorruption, codes.DataLoss, "CORRUPTION", false},
	"kv.ErrTooLarge":             {kv.ErrTooLarge, codes.Internal, "INTERNAL", false},
	"kv.ErrOutside":              {kv.ErrOutside, codes.Internal, "INTERNAL", false},
	"kv.ErrCommitted":            {kv.ErrCommitted, codes.Internal, "INTERNAL", false},
	"kv.ErrEmptyKey":             {kv.ErrEmptyKey, codes.Internal, "INTERNAL", false},
	"kv.ErrNotOperand":           {kv.ErrNotOperand, codes.Internal, "INTERNAL", false},
	"kv/shard.ErrNotLeader":      {shard.ErrNotLeader, codes.Unavailable, "NOT_LEADER", true},
	"kv/shard.ErrBusy":           {shard.ErrBusy, codes.ResourceExhausted, "BUSY", true},
	"kv/shard.ErrTooLarge":       {shard.ErrTooLarge, codes.InvalidArgument, "COMMAND_TOO_LARGE", false},
	"kv/shard.ErrStopped":        {shard.ErrStopped, codes.Unavailable, "STOPPING", true},
	"kv/shard.ErrFault":          {shard.ErrFault, codes.Unavailable, "SHARD_FAILED", true},
	"kv/shard.ErrOutcomeUnknown": {shard.ErrOutcomeUnknown, codes.Unknown, "OUTCOME_UNKNOWN", false},
	"kv/shard.ErrRuns":           {shard.ErrRuns, codes.Internal, "INTERNAL", false},
	"kv/shard.ErrForeign":        {shard.ErrForeign, codes.Internal, "INTERNAL", false},
	"kv/shard.ErrNoReplica":      {shard.ErrNoReplica, codes.Internal, "INTERNAL", false},
	"kv/shard.ErrLagging":        {shard.ErrLagging, codes.Internal, "INTERNAL", false},
	"kv/shard.ErrNoQuorum":       {shard.ErrNoQuorum, codes.Internal, "INTERNAL", false},
	"kv/shard.ErrLogLost":        {shard.ErrLogLost, codes.DataLoss, "LOG_LOST", false},
}

func TestEveryExportedErrorHasItsRow(t *testing.T) {
	found := map[string]bool{}
	for _, pkg := range []string{"graph", "edgelist", "kv", "kv/shard"} {
		for _, name := range exportedErrors(t, filepath.Join("..", filepath.FromSlash(pkg))) {
			found[pkg+"."+name] = true
		}
	}
	for name := range found {
		if _, ok := errorRows[name]; !ok {
			t.Errorf("%s has no row: say in errors.go what it becomes, explain its reason in docs/api.md, and add the row here", name)
		}
	}
	for name := range errorRows {
		if !found[name] {
			t.Errorf("%s is gone: take its row and its rule away", name)
		}
	}
}

// exportedErrors are the package variables Err… of a directory.
func exportedErrors(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				for _, id := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(id.Name, "Err") {
						names = append(names, id.Name)
					}
				}
			}
		}
	}
	if len(names) == 0 {
		t.Fatalf("no errors in %s", dir)
	}
	return names
}

func TestErrorsBecomeTheirStatus(t *testing.T) {
	const secret = "/var/lib/liana/state/000012.sst"
	for name, row := range errorRows {
		for _, err := range []error{row.err, fmt.Errorf("shard 3: user:42: %w", row.err)} {
			v := table(rules()).judge(err)
			if v.code != row.code || v.reason != row.reason || (v.retry > 0) != row.retryable {
				t.Errorf("%s: %v %s retryable=%v, want %v %s %v", name, v.code, v.reason, v.retry > 0, row.code, row.reason, row.retryable)
			}
			if v.message == "" {
				t.Errorf("%s: no message", name)
			}
		}
		if strings.HasPrefix(name, "graph.") {
			continue // the domain's own texts name nothing of the machine
		}
		if v := table(rules()).judge(fmt.Errorf("%w: open %s", row.err, secret)); strings.Contains(v.message, secret) {
			t.Errorf("%s tells a client %q", name, v.message)
		}
	}
}

// What is known about a write's outcome counts, not the cause that it wraps.
func TestTheOutcomeComesBeforeItsCause(t *testing.T) {
	cases := []struct {
		err    error
		code   codes.Code
		reason string
	}{
		{fmt.Errorf("%w: %w", shard.ErrOutcomeUnknown, context.DeadlineExceeded), codes.Unknown, "OUTCOME_UNKNOWN"},
		{fmt.Errorf("%w: %w", graph.ErrInverseLate, context.DeadlineExceeded), codes.Aborted, "INVERSE_PENDING"},
		{fmt.Errorf("%w: %w", shard.ErrOutcomeUnknown, kv.ErrClosed), codes.Unknown, "OUTCOME_UNKNOWN"},
		{fmt.Errorf("%w: %w", shard.ErrFault, kv.ErrCorruption), codes.Unavailable, "SHARD_FAILED"},
		{fmt.Errorf("%w: %w", graph.ErrTooFresh, context.DeadlineExceeded), codes.Unavailable, "NOT_FRESH"},
		{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE"},
		{context.Canceled, codes.Canceled, "CANCELED"},
		{errors.New("planted"), codes.Internal, "INTERNAL"},
	}
	for _, c := range cases {
		if v := table(rules()).judge(c.err); v.code != c.code || v.reason != c.reason {
			t.Errorf("%v: %v %s, want %v %s", c.err, v.code, v.reason, c.code, c.reason)
		}
	}
}

func TestMessagesAreBounded(t *testing.T) {
	err := invalid("f", "l", "%s", strings.Repeat("é", 1000))
	v := table(rules()).judge(err)
	if len(v.message) > maxErrorText || !utf8.ValidString(v.message) {
		t.Errorf("%d bytes, valid: %v", len(v.message), utf8.ValidString(v.message))
	}
	if st := status.Convert(v.status()); len(st.Details()) != 1 {
		t.Errorf("details %v", st.Details())
	}
}
