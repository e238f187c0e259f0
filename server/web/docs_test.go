package web

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// requested finds the method and the path of a curl line.
var (
	chosenMethod  = regexp.MustCompile(`-X ([A-Z]+)`)
	requestedPath = regexp.MustCompile(`127\.0\.0\.1:7401(/v1/[^\s'"?]*)`)
)

// Every call has a line of curl in docs/api.md, which `make tour` executes.
func TestEveryCallHasAnExample(t *testing.T) {
	doc, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string][]string{} // paths by method
	for line := range strings.Lines(string(doc)) {
		if !strings.Contains(line, "curl ") {
			continue
		}
		for _, m := range requestedPath.FindAllStringSubmatch(line, -1) {
			method := "GET"
			if strings.Contains(line, "--json") {
				method = "POST"
			}
			if x := chosenMethod.FindStringSubmatch(line); x != nil {
				method = x[1]
			}
			examples[method] = append(examples[method], m[1])
		}
	}
	eachMethod(func(m protoreflect.MethodDescriptor) {
		rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		if rule == nil {
			return
		}
		for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
			method, pattern := verb(r)
			if hasExample(examples[method], pattern) {
				return
			}
		}
		t.Errorf("docs/api.md has no line of curl for %s", m.FullName())
	})
}

func hasExample(paths []string, pattern string) bool {
	var want strings.Builder
	for pattern != "" {
		at := variable.FindStringSubmatchIndex(pattern)
		if at == nil {
			want.WriteString(regexp.QuoteMeta(pattern))
			break
		}
		want.WriteString(regexp.QuoteMeta(pattern[:at[0]]))
		if at[4] >= 0 { // {name=**}
			want.WriteString(".+")
		} else {
			want.WriteString("[^/:]+")
		}
		pattern = pattern[at[1]:]
	}
	whole := regexp.MustCompile("^" + want.String() + "$")
	return slices.ContainsFunc(paths, whole.MatchString)
}
