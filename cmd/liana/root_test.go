package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
)

// runnable returns all commands that do something.
func runnable(cmd *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, child := range cmd.Commands() {
		if child.Name() == "help" || child.Name() == "completion" {
			continue
		}
		if child.HasSubCommands() {
			out = append(out, runnable(child)...)
		} else {
			out = append(out, child)
		}
	}
	return out
}

func TestEveryCommandHasHelpAndAnExample(t *testing.T) {
	root := (&cli{}).rootCommand()
	commands := runnable(root)
	if len(commands) < 18 {
		t.Errorf("only %d commands", len(commands))
	}
	for _, cmd := range commands {
		path := strings.Fields(cmd.CommandPath())[1:]
		help := must(t, append(path, "--help")...)
		for _, part := range []string{"Usage:", "Examples:", "--addr", "--timeout", "liana " + strings.Join(path, " ")} {
			if !strings.Contains(help, part) {
				t.Errorf("help of %q lacks %q", path, part)
			}
		}
		if cmd.Short == "" {
			t.Errorf("%q has no description", path)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for line, text := range map[string]string{
		"nonsense":                    "unknown command",
		"edge":                        "needs one of its commands",
		"edge nonsense":               "unknown command",
		"edge add user:1 like":        "accepts 3 arg(s)",
		"edge add user:1 like note:x": `DST: want type:id, such as user:42, got "note:x"`,
		"edge add user:0 like note:1": "outside 1 to 18446744073709551614",
		"edge add user:1 like note:1 --time soon":              "--time: want RFC 3339",
		"edge add user:1 like note:1 --time 0":                 "must be after 1970",
		"edge add user:1 like note:1 --time -1":                "must be after 1970",
		"edge add user:1 like note:1 --wait maybe":             "--wait: want both or forward",
		"edge add user:1 like note:1 --prop x":                 "--prop: want name=value",
		"edge add user:1 like note:1 --nonsense":               "unknown flag",
		"edge has user:1 like note:1 user:2":                   "vertices of one type",
		"edge get user:1 like note:1 --token a --linearizable": "exclude each other",
		"edge list user:1 like --limit 0":                      "--limit: want 1 or more",
		"edge list user:1 like --limit -1":                     "--limit: want 1 or more",
		"edge list user:1 like --limit 5 --all":                "[all limit]",
		"edge list user:1 like --descending":                   "--by-id",
		"edge list user:1 like --skip -1":                      "invalid argument",
		"edge list user:1 like --by-id --since now":            "by-id",
		"edge count user:1 like --since later":                 "--since: want",
		"counter incr note:1":                                  "want VERTEX METRIC",
		"counter incr note:1 views x":                          "DELTA: want an integer",
		"counter incr note:1 views 9223372036854775808":        "does not fit into 64 bits",
		"counter incr note:1 views 1 --max x":                  "invalid argument",
		"counter incr --key k 1 2":                             "DELTA: want one number",
		"counter get":                                          "want VERTEX METRIC",
		"counter get --key k note:1":                           "--key goes without",
		"counter set note:1 views":                             "VALUE: want one number",
		"counter delete --key k more":                          "alone",
		"-o xml version":                                       "-o: want table or json",
		"--timeout 0s version":                                 "--timeout: want",
		"--timeout soon version":                               "invalid argument",
		"--addr nowhere status":                                "--addr: want host:port",
		"check --data-dir d --addr 127.0.0.1:1":                "exclude each other",
		"export edges --format xml":                            "--format: want csv or jsonl",
		"demo --likes 0":                                       "--likes: want",
		"import edges f":                                       "is needed",
	} {
		r := liana(strings.Fields(line)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, text) || !strings.Contains(r.stderr, "--help' for usage") {
			t.Errorf("liana %s: exit code %d, want 2 and %q\n%s", line, r.code, text, r.stderr)
		}
		if r.stdout != "" {
			t.Errorf("liana %s: stdout %q", line, r.stdout)
		}
	}
}

func TestBytesThatAreNoTextAreUsageErrors(t *testing.T) {
	_, addr := startFake(t)
	for line, field := range map[string]string{
		"edge add user\xff:1 like note:1":                    "edge.src.type",
		"edge add user:1 like note:1 --prop k=\xff":          "edge.properties",
		"edge add user:1 like note:1 --prop \xff=v":          "edge.properties",
		"counter get note:1 views \xff":                      "metrics[1]",
		"counter incr --key \xff":                            "increment.counter.key",
		"edge list user:1 like --page-token a\xff":           "page_token",
		"edge get user:1 like note:1 --token a\xff":          "consistency.token",
		"import edges /dev/null --type \xff --from a --to b": "type",
	} {
		r := liana(append(strings.Fields(line), "--addr", addr)...)
		r.expect(t, exitUsage, "error: "+field+": want UTF-8 text")
	}
}

func TestEmptyDataDirIsAUsageError(t *testing.T) {
	liana("check", "--data-dir", "").expect(t, exitUsage, "--data-dir: is empty")
}

func TestHints(t *testing.T) {
	c := &cli{addr: "a:1", timeout: time.Second}
	for reason, text := range map[string]string{
		"DISK_FULL":       "disk.reserve_bytes",
		"OUTCOME_UNKNOWN": "--request-id",
		"INVERSE_PENDING": "nothing needs to be done",
	} {
		if hint := c.hint(codes.Unknown, &errdetails.ErrorInfo{Reason: reason}); !strings.Contains(hint, text) {
			t.Errorf("%s: hint %q", reason, hint)
		}
	}
}

func TestNegativeNumbersAreNoFlags(t *testing.T) {
	root := (&cli{}).rootCommand()
	for line, want := range map[string]string{
		"counter incr note:7 views -3":               "counter incr note:7 views -- -3",
		"counter incr note:7 views -- -3":            "counter incr note:7 views -- -3",
		"counter incr note:7 views -3 --max 5":       "counter incr note:7 views --max 5 -- -3",
		"counter incr --min -5 note:7 views -3":      "counter incr --min -5 note:7 views -- -3",
		"counter incr --min=-5 -3 --key k":           "counter incr --min=-5 --key k -- -3",
		"-o json counter incr --key k -3":            "-o json counter incr --key k -- -3",
		"counter incr --addr 127.0.0.1:1 --key k -3": "counter incr --addr 127.0.0.1:1 --key k -- -3",
		"counter set --key k -3":                     "counter set --key k -- -3",
		"counter incr note:7 views 3":                "counter incr note:7 views 3",
		"edge list user:1 like --limit -1":           "edge list user:1 like --limit -1",
		"edge list user:1 like -1":                   "edge list user:1 like -1",
	} {
		if got := shieldNegatives(root, strings.Fields(line)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

func TestServerAwayGivesAHint(t *testing.T) {
	for _, line := range []string{"edge add user:1 like note:1", "edge list user:1 like", "status", "schema show", "export edges", "demo"} {
		r := liana(append(strings.Fields(line), "--addr", "127.0.0.1:1")...)
		r.expect(t, exitFailed, "error: ", "hint: no server answers at 127.0.0.1:1", "lianad start")
	}
	liana("check", "--addr", "127.0.0.1:1").expect(t, exitNotChecked, "hint: no server answers")
}

func TestServerErrorsTellReasonFieldAndLimit(t *testing.T) {
	_, addr := startFake(t)
	r := liana("edge", "add", "user:1", "like", "note:1", "--time", "+1h", "--addr", addr)
	r.expect(t, exitFailed, "error: the time lies more than 5 minutes ahead", "reason: TIME_IN_FUTURE", "field: edge.time", "limit: 5m")
	r = liana("edge", "get", "user:1", "like", "note:1", "--addr", addr)
	r.expect(t, exitFailed, "error: no such edge", "code: NotFound")
}

func TestVersionAndCompletion(t *testing.T) {
	if out := must(t, "version"); !strings.HasPrefix(out, "liana ") || !strings.Contains(out, "liana.v1") {
		t.Errorf("got %q", out)
	}
	var v buildVersion
	if err := json.Unmarshal([]byte(must(t, "version", "-o", "json")), &v); err != nil || v.API != "liana.v1" {
		t.Errorf("got %+v, %v", v, err)
	}
	if out := must(t, "completion", "bash"); !strings.Contains(out, "liana") {
		t.Error("no completion for bash")
	}
}
