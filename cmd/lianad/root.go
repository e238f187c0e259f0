package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// usageError is a mistake in flags or configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// run executes a command line and returns the exit code.
func run(h host, args []string, stdout, stderr io.Writer) int {
	root := newRoot(h)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	var forced forcedError
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &forced):
		return exitForced
	}
	fmt.Fprintf(stderr, "lianad: %v\n", err)
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func newRoot(h host) *cobra.Command {
	root := &cobra.Command{
		Use:           "lianad",
		Short:         "A node of Liana, a store for likes, follows and counters",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newStart(h), newConfig(), newRecover(h), newVersion())
	return root
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("unknown command or argument %q; see %s --help", args[0], cmd.CommandPath())}
}

func newStart(h host) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start the node; it runs until SIGINT or SIGTERM",
		Long: `Start the node. It prints one line on standard output when every shard serves,
and logs on standard error. SIGINT or SIGTERM stops it: calls in flight are
answered first. A second signal ends it at once; nothing acknowledged is lost.

Exit codes: 0 stopped; 1 could not start or had to end; 2 wrong flags or
configuration; 3 ended with calls unanswered.`,
		Example: "  lianad start\n  lianad start --data-dir /var/lib/liana --grpc-addr 127.0.0.1:0 --log-format json",
		Args:    noArguments,
	}
	flags := newFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := flags.load()
		if err != nil {
			return usageError{err}
		}
		return start(h, cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

func newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Print the configuration that `start` would use, as YAML",
		Example: "  lianad config > liana.yaml\n  lianad config --config liana.yaml --shards 8",
		Args:    noArguments,
	}
	flags := newFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := flags.load()
		if err != nil {
			return usageError{err}
		}
		b, err := yaml.Marshal(cfg)
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(b)
		return err
	}
	return cmd
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "lianad %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
