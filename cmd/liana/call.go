package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// dial returns the connection of this run. It is lazy: a server that does not
// answer shows at the first call.
func (c *cli) dial() (*grpc.ClientConn, error) {
	if c.conn != nil {
		return c.conn, nil
	}
	if _, port, err := net.SplitHostPort(c.addr); err != nil || port == "" {
		return nil, usagef("--addr: want host:port, such as %s, got %q", defaultAddr, c.addr)
	}
	conn, err := grpc.NewClient("passthrough:///"+c.addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, usagef("--addr: %v", err)
	}
	c.conn = conn
	return conn, nil
}

func (c *cli) graph() (lianav1.GraphClient, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	return lianav1.NewGraphClient(conn), nil
}

func (c *cli) counters() (lianav1.CountersClient, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	return lianav1.NewCountersClient(conn), nil
}

func (c *cli) admin() (lianav1.AdminClient, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	return lianav1.NewAdminClient(conn), nil
}

// call runs one unary call under --timeout.
func call[Req proto.Message, Resp any](ctx context.Context, c *cli,
	method func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (resp Resp, err error) {
	if field := notText(req.ProtoReflect()); field != "" {
		return resp, usagef("%s: want UTF-8 text", field)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return method(ctx, req)
}

// ask is call for who needs a service for one call only.
func ask[Service any, Req proto.Message, Resp any](ctx context.Context, c *cli, service func() (Service, error),
	method func(Service, context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (resp Resp, err error) {
	s, err := service()
	if err != nil {
		return resp, err
	}
	bound := func(ctx context.Context, req Req, opts ...grpc.CallOption) (Resp, error) {
		return method(s, ctx, req, opts...)
	}
	return call(ctx, c, bound, req)
}

// notText names a field of m that holds bytes which are no text. gRPC would send none
// of the message, and not say where.
func notText(m protoreflect.Message) (field string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				if !utf8.ValidString(k.String()) || !utf8.ValidString(v.String()) {
					field = name
				}
				return field == ""
			})
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			for i := range v.List().Len() {
				if !utf8.ValidString(v.List().Get(i).String()) {
					field = fmt.Sprintf("%s[%d]", name, i)
				}
			}
		case f.IsList():
		case f.Kind() == protoreflect.MessageKind:
			if below := notText(v.Message()); below != "" {
				field = name + "." + below
			}
		case f.Kind() == protoreflect.StringKind && !utf8.ValidString(v.String()):
			field = name
		}
		return field == ""
	})
	return field
}

// stallLimit is how long a stream may be silent: --timeout where it was given,
// else fallback, since the work behind one message of a stream may be large.
func (c *cli) stallLimit(cmd *cobra.Command, fallback time.Duration) time.Duration {
	if cmd.Flags().Changed("timeout") {
		return c.timeout
	}
	return fallback
}

var errStalled = errors.New("the server is silent")

// watchdog cancels a stream's context when nobody feeds it for the given time.
type watchdog struct {
	timer *time.Timer
	limit time.Duration
}

func newWatchdog(ctx context.Context, limit time.Duration) (context.Context, *watchdog, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{limit: limit, timer: time.AfterFunc(limit, func() { cancel(errStalled) })}
	return ctx, w, func() { w.timer.Stop(); cancel(context.Canceled) }
}

func (w *watchdog) feed()  { w.timer.Reset(w.limit) }
func (w *watchdog) pause() { w.timer.Stop() }

// readFlags are the flags of commands that read.
type readFlags struct {
	token        string
	linearizable bool
}

func (f *readFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.token, "token", "", "read at least as fresh as this token of an earlier answer")
	cmd.Flags().BoolVar(&f.linearizable, "linearizable", false, "see everything acknowledged before the read began")
}

func (f *readFlags) consistency() (*lianav1.Consistency, error) {
	switch {
	case f.token != "" && f.linearizable:
		return nil, usagef("--token and --linearizable exclude each other")
	case f.token != "":
		return &lianav1.Consistency{Level: lianav1.ReadLevel_AT_LEAST_AS_FRESH, Token: f.token}, nil
	case f.linearizable:
		return &lianav1.Consistency{Level: lianav1.ReadLevel_LINEARIZABLE}, nil
	default:
		return nil, nil
	}
}

// waitFlag is the --wait flag of commands that write edges.
type waitFlag struct{ text string }

func (f *waitFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "wait", "both", "wait until durable: both (the edge and its inverse) or forward (the edge)")
}

func (f *waitFlag) wait() (lianav1.Wait, error) {
	switch f.text {
	case "both":
		return lianav1.Wait_BOTH, nil
	case "forward":
		return lianav1.Wait_FORWARD, nil
	default:
		return 0, usagef("--wait: want both or forward, got %q", f.text)
	}
}
