package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// undone are the words that leave work to nobody. They are put together here so
// that this file does not hold them.
var undone = regexp.MustCompile(`\b(` + strings.Join([]string{"TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"}, "|") + `)\b`)

func TestNothingIsLeftForLater(t *testing.T) {
	sourceFiles(t, func(path string, content []byte) {
		for i, line := range strings.Split(string(content), "\n") {
			if word := undone.FindString(line); word != "" {
				t.Errorf("%s:%d: %s: do it, or file an issue", path, i+1, word)
			}
		}
	})
}

func TestEveryPackageExplainsItself(t *testing.T) {
	for _, l := range layers {
		name := strings.TrimSuffix(l.pkg, "/...")
		if within(name, "proto") || within(name, "docs") || name == "kv/kvtest" || name == "cache/cachetest" || name == "server/web/gateway" {
			continue // explained in the .proto files, in docs/clients.md, in kv, in cache and in server/web
		}
		if _, err := os.Stat(filepath.Join(root, name, "DESIGN.md")); err != nil {
			t.Errorf("%s has no DESIGN.md", name)
		}
	}
}

// link is a Markdown link: [text](target).
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	sourceFiles(t, func(path string, content []byte) {
		if filepath.Ext(path) != ".md" {
			return
		}
		for _, m := range link.FindAllStringSubmatch(string(content), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(path), target)); err != nil {
				t.Errorf("%s: link to %s leads nowhere", path, target)
			}
		}
	})
}
