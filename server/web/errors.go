package web

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Errors of calls come as statuses and stay what they are. Those of the door itself
// are made here, in the same form; docs/api.md explains their reasons.
const (
	errorDomain = "liana.dev"

	reasonInvalid  = "INVALID_FIELD" // the server's own, for what it never saw
	reasonNoRoute  = "NO_ROUTE"
	reasonHost     = "WRONG_HOST"
	reasonOrigin   = "WRONG_ORIGIN"
	reasonBody     = "BAD_BODY"
	reasonTooLarge = "BODY_TOO_LARGE"
	reasonSlowBody = "SLOW_BODY"
)

// Reasons are those that only this door gives.
func Reasons() []string {
	return []string{reasonNoRoute, reasonHost, reasonOrigin, reasonBody, reasonTooLarge, reasonSlowBody}
}

// refusal is a request that does not get as far as a call.
type refusal struct {
	http    int
	code    codes.Code
	reason  string
	message string
}

func (e *refusal) Error() string { return e.message }

// refuse answers with an error of the door.
func refuse(w http.ResponseWriter, err error) {
	var e *refusal
	if !errors.As(err, &e) {
		e = &refusal{http: http.StatusInternalServerError, code: codes.Internal, reason: "INTERNAL", message: "internal error"}
	}
	write(w, e.http, described(e.code, e.message, e.reason, ""))
}

// described is a status with its reason.
func described(code codes.Code, message, reason, field string) *status.Status {
	info := &errdetails.ErrorInfo{Domain: errorDomain, Reason: reason, Metadata: map[string]string{"retryable": "false"}}
	if field != "" {
		info.Metadata["field"] = field
	}
	st := status.New(code, strings.ToValidUTF8(message, "?"))
	full, err := st.WithDetails(info)
	if err != nil { // a field's name that is not UTF-8
		return st
	}
	return full
}

// fail answers a call with its status.
func fail(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	st := status.Convert(err)
	var malformed *runtime.HTTPStatusError
	if errors.As(err, &malformed) {
		st = status.New(codes.InvalidArgument, malformed.Error())
	}
	if len(st.Details()) == 0 && st.Code() == codes.InvalidArgument {
		st = mistake(st.Message())
	}
	write(w, runtime.HTTPStatusFromCode(st.Code()), st)
}

// namesField finds the field in a message of the gateway or of protojson, which say it
// nowhere else.
var namesField = regexp.MustCompile(`(?:field "|list "|parameter: |\bfield )([A-Za-z_][A-Za-z0-9_.]*)`)

// mistake is the status of a path, a query or a body that makes no message.
func mistake(message string) *status.Status {
	message = strings.ReplaceAll(message, "\u00a0", " ") // protojson's, on purpose
	message = strings.TrimPrefix(message, "proto: ")
	field := ""
	if m := namesField.FindStringSubmatch(message); m != nil {
		field = m[1]
	}
	return described(codes.InvalidArgument, message, reasonInvalid, field)
}

// noRoute answers a path or method that is not of the API.
func noRoute(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, code int) {
	e := &refusal{http: code, code: codes.NotFound, reason: reasonNoRoute, message: "the API has no such path; /docs lists them"}
	if code == http.StatusMethodNotAllowed {
		e.code, e.message = codes.Unimplemented, "the path has no such method; /docs lists them"
	}
	refuse(w, e)
}

// write sends st as google.rpc.Status.
func write(w http.ResponseWriter, code int, st *status.Status) {
	b, err := newMarshaler().Marshal(st.Proto())
	if err != nil { // a detail of a type that this program does not know
		b, code = []byte(`{"code":13,"message":"internal error"}`+"\n"), http.StatusInternalServerError
	}
	h := w.Header()
	h.Del("Trailer")
	h.Del("Transfer-Encoding")
	h.Set("Content-Type", "application/json")
	if d := retryAfter(st); d > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10))
	}
	w.WriteHeader(code)
	_, _ = w.Write(b) // the client is gone
}

// retryAfter is when the same request may succeed; 0: a status does not say.
func retryAfter(st *status.Status) time.Duration {
	for _, d := range st.Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			return retry.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
