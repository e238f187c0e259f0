package web

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// files are the definitions whose calls the door may have.
func files() []protoreflect.FileDescriptor {
	return []protoreflect.FileDescriptor{
		pb.File_liana_v1_graph_proto, pb.File_liana_v1_counters_proto, pb.File_liana_v1_admin_proto,
		pb.File_liana_v1_cluster_proto, pb.File_liana_v1_cache_proto, pb.File_liana_v1_changes_proto,
	}
}

// routes are the requests that the door answers, by method and path pattern.
type routes map[string]route

// route is where the parts of a request go.
type route struct {
	input protoreflect.MessageDescriptor
	body  bool     // all that the path does not have is in the body
	path  []string // fields of the path
}

// variable is a field in a path, with what it matches: "*" where nothing is said.
var variable = regexp.MustCompile(`\{([^}=]+)(?:=([^}]+))?\}`)

func routesOf(files []protoreflect.FileDescriptor) routes {
	rs := routes{}
	for _, f := range files {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				rs.add(methods.Get(j))
			}
		}
	}
	return rs
}

func (rs routes) add(m protoreflect.MethodDescriptor) {
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule == nil {
		return
	}
	for _, r := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		method, pattern := verb(r)
		rt := route{input: m.Input(), body: r.GetBody() != ""}
		for _, v := range variable.FindAllStringSubmatch(pattern, -1) {
			rt.path = append(rt.path, v[1])
			// As the gateway writes its patterns.
			pattern = strings.Replace(pattern, v[0], "{"+v[1]+"="+cmp.Or(v[2], "*")+"}", 1)
		}
		rs[method+" "+pattern] = rt
	}
}

func verb(r *annotations.HttpRule) (method, pattern string) {
	switch p := r.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		return http.MethodPost, p.Post
	case *annotations.HttpRule_Put:
		return http.MethodPut, p.Put
	case *annotations.HttpRule_Patch:
		return http.MethodPatch, p.Patch
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, p.Delete
	}
	return "", ""
}

// checkQuery refuses parameters that the gateway would pass over in silence: a
// misspelt filter must not answer as if there were none.
func (rs routes) checkQuery(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		pattern, _ := runtime.HTTPPattern(r.Context())
		rt, ok := rs[r.Method+" "+pattern.String()]
		if !ok { // a route that is not of the definitions; there is none
			next(w, r, params)
			return
		}
		query, err := queryOf(r)
		if err != nil {
			write(w, http.StatusBadRequest, mistake(err.Error()))
			return
		}
		for name := range query {
			if !rt.takes(name) {
				write(w, http.StatusBadRequest, mistake(`unknown field "`+name+`" in the query`))
				return
			}
		}
		next(w, r, params)
	}
}

func queryOf(r *http.Request) (map[string][]string, error) {
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	return r.Form, nil
}

// takes reports whether name is a field of the request that the query may set.
func (rt route) takes(name string) bool {
	if rt.body {
		return false
	}
	msg, proper := rt.input, []string{}
	for part := range strings.SplitSeq(name, ".") {
		if msg == nil {
			return false
		}
		f := msg.Fields().ByName(protoreflect.Name(part))
		if f == nil {
			f = msg.Fields().ByJSONName(part)
		}
		if f == nil {
			return false
		}
		msg, proper = f.Message(), append(proper, string(f.Name()))
	}
	return msg == nil && !slices.Contains(rt.path, strings.Join(proper, "."))
}
