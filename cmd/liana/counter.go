package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

func (c *cli) counterCommand() *cobra.Command {
	return group("counter", "Increment, read, set and delete counters",
		c.counterIncrCommand(), c.counterGetCommand(), c.counterSetCommand(), c.counterDeleteCommand())
}

// keyFlag chooses a free-form counter instead of a vertex's metric.
type keyFlag struct{ key string }

func (f *keyFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.key, "key", "", "a free-form counter of this name, instead of VERTEX METRIC")
}

// counter takes the counter from the front of args and returns what is left. With
// --key nothing is taken.
func (f *keyFlag) counter(cmd *cobra.Command, args []string) (*lianav1.CounterRef, []string, error) {
	if cmd.Flags().Changed("key") {
		if f.key == "" {
			return nil, nil, usagef("--key: want a name of 1 to 512 bytes")
		}
		return &lianav1.CounterRef{Key: f.key}, args, nil
	}
	if len(args) < 2 {
		return nil, nil, usagef("want VERTEX METRIC, such as note:7 views, or --key KEY")
	}
	vertex, err := parseVertex("VERTEX", args[0])
	if err != nil {
		return nil, nil, err
	}
	return &lianav1.CounterRef{Vertex: vertex, Metric: args[1]}, args[2:], nil
}

// incrFlags are the flags of `counter incr`.
type incrFlags struct {
	keyFlag
	min, max            int64
	expireAt, requestID string
}

func (f *incrFlags) register(cmd *cobra.Command) {
	f.keyFlag.register(cmd)
	cmd.Flags().Int64Var(&f.min, "min", 0, "change nothing where the sum would lie below")
	cmd.Flags().Int64Var(&f.max, "max", 0, "change nothing where the sum would lie above")
	cmd.Flags().StringVar(&f.expireAt, "expire-at", "", "time at which the counter ends, if it has none yet (+1d: in a day)")
	cmd.Flags().StringVar(&f.requestID, "request-id", "", "1 to 64 bytes; a repeated call with it applies once")
}

func (f *incrFlags) request(cmd *cobra.Command, args []string) (*lianav1.IncrByRequest, error) {
	counter, rest, err := f.counter(cmd, args)
	if err != nil {
		return nil, err
	}
	increment := &lianav1.Increment{Counter: counter, Delta: 1}
	if len(rest) > 1 {
		return nil, usagef("DELTA: want one number, got %q", rest)
	}
	if len(rest) == 1 {
		if increment.Delta, err = parseInt("DELTA", rest[0]); err != nil {
			return nil, err
		}
	}
	if cmd.Flags().Changed("min") {
		increment.Min = &f.min
	}
	if cmd.Flags().Changed("max") {
		increment.Max = &f.max
	}
	if increment.ExpireAt, err = parseExpiry(f.expireAt); err != nil {
		return nil, err
	}
	return &lianav1.IncrByRequest{Increment: increment, RequestId: f.requestID}, nil
}

// parseExpiry reads --expire-at; empty is 0, no expiry.
func parseExpiry(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	return parseEdgeTime("--expire-at", text, time.Now())
}

func (c *cli) counterIncrCommand() *cobra.Command {
	flags := new(incrFlags)
	cmd := &cobra.Command{
		Use:   "incr VERTEX METRIC [DELTA] | --key KEY [DELTA]",
		Short: "Add to a counter (by default 1; DELTA may be negative)",
		Long: `Add to a counter (by default 1; DELTA may be negative). Where the sum would pass
--min or --max, nothing changes and the answer says so.

With --request-id a repeated call applies once, if it is the same in all else: give
--expire-at an absolute time then, since a relative one moves from call to call.`,
		Example: `  liana counter incr note:7 views
  liana counter incr note:7 views -3 --request-id visit-1
  liana counter incr --key daily:user:42 --max 5 --expire-at +1d`,
		Annotations: map[string]string{takesNegatives: "yes"},
		Args:        cobra.MaximumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := flags.request(cmd, args)
			if err != nil {
				return err
			}
			answer, err := ask(cmd.Context(), c, c.counters, lianav1.CountersClient.IncrBy, request)
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) {
				changed := yesNo(answer.GetChanged())
				if !answer.GetChanged() {
					changed = "no (held back by a cap)"
				}
				fmt.Fprintf(w, "VALUE\tCHANGED\tTOKEN\n%d\t%s\t%s\n", answer.GetValue(), changed, answer.GetToken())
			})
		},
	}
	flags.register(cmd)
	return cmd
}

func (c *cli) counterGetCommand() *cobra.Command {
	flags := new(struct {
		keyFlag
		readFlags
	})
	cmd := &cobra.Command{
		Use:   "get VERTEX [METRIC...] | --key KEY",
		Short: "Read counters: all metrics of a vertex, some of them, or one by key",
		Example: `  liana counter get note:7
  liana counter get note:7 views shares
  liana counter get --key daily:user:42`,
		RunE: func(cmd *cobra.Command, args []string) error {
			request := new(lianav1.GetCounterRequest)
			var err error
			if cmd.Flags().Changed("key") || len(args) == 0 {
				var rest []string
				if request.Counter, rest, err = flags.counter(cmd, args); err != nil {
					return err
				}
				if len(rest) > 0 {
					return usagef("--key goes without VERTEX and METRIC, got %q", rest)
				}
			} else {
				vertex, err := parseVertex("VERTEX", args[0])
				if err != nil {
					return err
				}
				request.Counter, request.Metrics = &lianav1.CounterRef{Vertex: vertex}, args[1:]
			}
			if request.Consistency, err = flags.consistency(); err != nil {
				return err
			}
			answer, err := ask(cmd.Context(), c, c.counters, lianav1.CountersClient.Get, request)
			if err != nil {
				return err
			}
			return c.printCounters(answer)
		},
	}
	flags.keyFlag.register(cmd)
	flags.readFlags.register(cmd)
	return cmd
}

func (c *cli) printCounters(answer *lianav1.GetCounterResponse) error {
	return c.out.message(answer, func(w io.Writer) {
		fmt.Fprintln(w, "COUNTER\tVALUE\tEXISTS\tEXPIRES")
		for _, counter := range answer.GetCounters() {
			expires := "never"
			if counter.GetExpireAt() != 0 {
				expires = timeText(counter.GetExpireAt())
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", counterText(counter.GetCounter()), counter.GetValue(),
				yesNo(counter.GetExists()), expires)
		}
	})
}

func counterText(ref *lianav1.CounterRef) string {
	if ref.GetVertex() == nil {
		return ref.GetKey()
	}
	return vertexText(ref.GetVertex()) + " " + ref.GetMetric()
}

func (c *cli) counterSetCommand() *cobra.Command {
	flags := new(keyFlag)
	var expireAt string
	cmd := &cobra.Command{
		Use:   "set VERTEX METRIC VALUE | --key KEY VALUE",
		Short: "Set a counter to a value",
		Example: `  liana counter set note:7 views 1000
  liana counter set --key balance -25 --expire-at 2030-01-01`,
		Annotations: map[string]string{takesNegatives: "yes"},
		Args:        cobra.MaximumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			counter, rest, err := flags.counter(cmd, args)
			if err != nil {
				return err
			}
			if len(rest) != 1 {
				return usagef("VALUE: want one number, got %q", rest)
			}
			request := &lianav1.SetCounterRequest{Counter: counter}
			if request.Value, err = parseInt("VALUE", rest[0]); err != nil {
				return err
			}
			if request.ExpireAt, err = parseExpiry(expireAt); err != nil {
				return err
			}
			answer, err := ask(cmd.Context(), c, c.counters, lianav1.CountersClient.Set, request)
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) { fmt.Fprintf(w, "TOKEN\n%s\n", answer.GetToken()) })
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&expireAt, "expire-at", "", "time at which the counter ends (default: never)")
	return cmd
}

func (c *cli) counterDeleteCommand() *cobra.Command {
	flags := new(keyFlag)
	cmd := &cobra.Command{
		Use:   "delete VERTEX METRIC | --key KEY",
		Short: "Delete a counter",
		Example: `  liana counter delete note:7 views
  liana counter delete --key daily:user:42`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			counter, rest, err := flags.counter(cmd, args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return usagef("want VERTEX METRIC or --key KEY alone, got %q too", rest)
			}
			return c.printWrite(ask(cmd.Context(), c, c.counters, lianav1.CountersClient.Delete,
				&lianav1.DeleteCounterRequest{Counter: counter}))
		},
	}
	flags.register(cmd)
	return cmd
}
