package main

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

func TestDefaultsAreValid(t *testing.T) {
	if err := defaults().validate(); err != nil {
		t.Fatal(err)
	}
}

func TestFlagsWinOverTheFileAndTheFileOverDefaults(t *testing.T) {
	file := writeFile(t, "liana.yaml", "shards: 8\nlog_level: debug\nlimits:\n  max_calls: 7\nstorage:\n  fresh_wait: 3s\n")
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	f := newFlags(set)
	if err := set.Parse([]string{"--config", file, "--shards", "2", "--http-addr", "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	got, err := f.load()
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Shards, want.LogLevel, want.Limits.MaxCalls, want.HTTPAddr = 2, "debug", 7, "127.0.0.1:0"
	want.Storage.FreshWait = 3 * time.Second
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func TestConfigPrintsWhatStartWouldUse(t *testing.T) {
	code, out, errs := silent("config", "--shards", "3", "--log-format", "json")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var c config
	if err := decodeYAML([]byte(out), &c); err != nil {
		t.Fatalf("its output is no configuration: %v\n%s", err, out)
	}
	want := defaults()
	want.Shards, want.LogFormat = 3, "json"
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v\nwant %+v", c, want)
	}
}

func TestMistakesAreNamedAndEndWithTwo(t *testing.T) {
	file := func(text string) []string { return []string{"config", "--config", writeFile(t, "liana.yaml", text)} }
	cases := []struct {
		args []string
		says []string
	}{
		{file("data_dir: x\nshard: 4\n"), []string{"line 2", `unknown key "shard"`, "liana.yaml"}},
		{file("limits:\n  max_cals: 4\n"), []string{"line 2", `unknown key "max_cals"`}},
		{file("shards: many\n"), []string{"line 1", "many"}},
		{file("stop_timeout: 10\n"), []string{"line 1", "time.Duration"}},
		{file("shards: 4\nshards: 5\n"), []string{"line 2", "already defined"}},
		{file("shards: 4\n---\nshards: 5\n"), []string{"more than one document"}},
		{file("shards: [\n"), []string{"yaml"}},
		{file("log_level: loud\nlog_format: xml\n"), []string{"log_level", "log_format"}},
		{file("storage:\n  lists:\n    split_entries: 1\n"), []string{"storage.lists", "SplitEntries"}},
		{file("storage:\n  memtable_bytes: 1\n  fresh_wait: 0s\n"), []string{"storage.memtable_bytes", "storage.fresh_wait"}},
		{[]string{"config", "--config", "/does/not/exist"}, []string{"/does/not/exist"}},
		{[]string{"config", "--shards", "4097"}, []string{"shards: 4097", "4096"}},
		{[]string{"config", "--shards", "-1"}, []string{"shards"}},
		{[]string{"config", "--shards", "x"}, []string{"shards"}},
		{[]string{"config", "--grpc-addr", "0.0.0.0:7400"}, []string{"grpc_addr", "no authentication", "--allow-remote"}},
		{[]string{"config", "--peer-addr", "7403"}, []string{"peer_addr"}},
		{[]string{"config", "--data-dir", ""}, []string{"data_dir"}},
		{[]string{"config", "--colour"}, []string{"--colour"}},
		{[]string{"config", "extra"}, []string{`"extra"`}},
		{[]string{"strat"}, []string{`"strat"`}},
		{[]string{"start", "--grpc-addr", ":7400"}, []string{"grpc_addr"}},
	}
	for _, c := range cases {
		code, _, errs := silent(c.args...)
		if code != exitUsage {
			t.Errorf("%v: exit code %d, %s", c.args, code, errs)
		}
		for _, s := range c.says {
			if !strings.Contains(errs, s) {
				t.Errorf("%v does not say %q: %s", c.args, s, errs)
			}
		}
	}
}

func TestAFileOfCommentsIsTheDefaults(t *testing.T) {
	c := defaults()
	if err := decodeYAML([]byte("# nothing\n"), &c); err != nil || !reflect.DeepEqual(c, defaults()) {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestVersionAndHelp(t *testing.T) {
	if code, out, _ := silent("version"); code != exitOK || !strings.HasPrefix(out, "lianad ") {
		t.Errorf("%d %q", code, out)
	}
	for _, args := range [][]string{{}, {"start", "--help"}, {"help"}} {
		if code, out, _ := silent(args...); code != exitOK || !strings.Contains(out, "Usage") {
			t.Errorf("%v: %d %q", args, code, out)
		}
	}
}

// keys are the YAML paths of a struct's fields.
func keys(typ reflect.Type, prefix string) []string {
	var out []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, opt, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case opt == "inline":
			out = append(out, keys(f.Type, prefix)...)
		case f.Type.Kind() == reflect.Struct:
			out = append(out, keys(f.Type, prefix+name+".")...)
		default:
			out = append(out, prefix+name)
		}
	}
	return out
}

func TestEveryKeyAndFlagIsDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	all := keys(reflect.TypeFor[config](), "")
	if len(all) < 20 {
		t.Fatalf("keys %v", all)
	}
	for _, k := range all {
		if !strings.Contains(doc, "`"+k+"`") {
			t.Errorf("docs/configuration.md does not name `%s`", k)
		}
	}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	newFlags(set)
	set.VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(doc, "`--"+f.Name+"`") {
			t.Errorf("docs/configuration.md does not name `--%s`", f.Name)
		}
	})
	example := between(t, doc, "```yaml\n", "```")
	c := defaults()
	if err := decodeYAML([]byte(example), &c); err != nil {
		t.Errorf("its example: %v", err)
	}
	if err := c.validate(); err != nil {
		t.Errorf("its example: %v", err)
	}
}

// The table of the document has the defaults of the code.
func TestTheDocumentedDefaultsAreTrue(t *testing.T) {
	b, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	text, err := yaml.Marshal(defaults())
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		key, def := strings.Trim(cells[1], " `"), strings.Trim(cells[3], " `")
		value := any(tree)
		for part := range strings.SplitSeq(key, ".") {
			m, ok := value.(map[string]any)
			if !ok {
				t.Errorf("no key %s", key)
				break
			}
			value = m[part]
		}
		want, err := yaml.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(want)); got != def && !(got == `""` && def == "empty") {
			t.Errorf("%s: the document says %s, the code %s", key, def, got)
		}
		rows++
	}
	if rows != len(keys(reflect.TypeFor[config](), "")) {
		t.Errorf("%d rows for %d keys", rows, len(keys(reflect.TypeFor[config](), "")))
	}
}

func between(t *testing.T, s, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(s, from)
	inside, _, end := strings.Cut(rest, to)
	if !ok || !end {
		t.Fatalf("no text between %q and %q", from, to)
	}
	return inside
}
