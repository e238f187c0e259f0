package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// usageError is a command line that cannot be carried out. Its text names the
// argument and the form that is expected.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// exitError ends the command with a certain code. A nil err prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// errorDomain is the domain of the ErrorInfo that a Liana server attaches.
const errorDomain = "liana.dev"

// errorInfo returns what the server attached to err, or nil.
func errorInfo(err error) *errdetails.ErrorInfo {
	st, ok := status.FromError(err)
	if !ok {
		return nil
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == errorDomain {
			return info
		}
	}
	return nil
}

// annotate puts text before the message of a server's error and keeps the rest of it.
func annotate(err error, text string) error {
	proto := status.Convert(err).Proto()
	proto.Message = text + ": " + proto.Message
	return status.FromProto(proto).Err()
}

func (c *cli) printError(err error) {
	st, ok := status.FromError(err)
	if errors.Is(err, context.Canceled) || st.Code() == codes.Canceled {
		fmt.Fprintln(c.stderr, "error: interrupted")
		return
	}
	if !ok || st.Code() == codes.OK {
		fmt.Fprintf(c.stderr, "error: %v\n", err)
		return
	}
	fmt.Fprintf(c.stderr, "error: %s\n", st.Message())
	info := errorInfo(err)
	if info == nil {
		fmt.Fprintf(c.stderr, "  code: %s\n", st.Code())
	} else {
		fmt.Fprintf(c.stderr, "  reason: %s\n", info.Reason)
		for _, key := range []string{"field", "limit"} {
			if value := info.Metadata[key]; value != "" {
				fmt.Fprintf(c.stderr, "  %s: %s\n", key, value)
			}
		}
	}
	if hint := c.hint(st.Code(), info); hint != "" {
		fmt.Fprintf(c.stderr, "hint: %s\n", hint)
	}
}

// hint tells what to do about errors whose remedy does not follow from their text.
func (c *cli) hint(code codes.Code, info *errdetails.ErrorInfo) string {
	switch {
	case code == codes.Unavailable && info == nil:
		return fmt.Sprintf("no server answers at %s; start one with: lianad start --data-dir DIR (or give --addr)", c.addr)
	case code == codes.DeadlineExceeded:
		return fmt.Sprintf("no answer within %s; a write may have taken effect or not (--timeout waits longer)", c.timeout)
	case info != nil && info.Reason == "DISK_FULL":
		return "make room on the disk of the server's data directory; disk.reserve_bytes in its configuration says how much stays free"
	case info != nil && info.Reason == "OUTCOME_UNKNOWN":
		return "the write may have taken effect or not; edge writes may be repeated freely, increments with the same --request-id"
	case info != nil && info.Reason == "INVERSE_PENDING":
		return "the edge is durable, its inverse follows by itself; nothing needs to be done"
	default:
		return ""
	}
}
