package web

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
)

// readBody replaces the body of r by what was read of it. It is read whole before
// anything else: a slow client holds a connection meanwhile, and nothing more.
func (d *Door) readBody(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
	default:
		r.Body = http.NoBody // means nothing; net/http deals with it
		return nil
	}
	if err := checkType(r); err != nil {
		return err
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(d.cfg.MaxTime)) // a connection without has none
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(d.cfg.MaxBody)))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &refusal{http: http.StatusRequestEntityTooLarge, code: codes.ResourceExhausted, reason: reasonTooLarge,
			message: "the body is larger than " + strconv.Itoa(d.cfg.MaxBody) + " bytes"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{http: http.StatusRequestTimeout, code: codes.DeadlineExceeded, reason: reasonSlowBody,
			message: "the body did not arrive within " + d.cfg.MaxTime.String()}
	case err != nil:
		return &refusal{http: http.StatusBadRequest, code: codes.InvalidArgument, reason: reasonBody, message: "the body cannot be read"}
	}
	_ = rc.SetReadDeadline(time.Time{}) // from here on the connection is read to see its end
	r.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}

// checkType refuses what is not said to be JSON. A form or plain text may be posted by
// any page without asking first.
func checkType(r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || r.Header.Get("Content-Encoding") != "" {
		return &refusal{http: http.StatusUnsupportedMediaType, code: codes.InvalidArgument, reason: reasonBody,
			message: "the body is to be JSON, not compressed, with the header Content-Type: application/json"}
	}
	return nil
}

// patientWriter gives a client so long to take each part of an answer.
type patientWriter struct {
	http.ResponseWriter
	patience time.Duration
}

// Unwrap is for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *patientWriter) Write(b []byte) (int, error) {
	// net/http takes the deadline off at the end of the request.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.patience))
	return w.ResponseWriter.Write(b)
}
