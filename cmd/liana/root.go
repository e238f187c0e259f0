package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
)

// Exit codes, beside 0 for success. `liana check` has its own (see check.go).
const (
	exitFailed  = 1 // the server refused or failed, or a file could not be read
	exitUsage   = 2 // the command line is wrong
	exitPartial = 3 // an import under policy skip rejected rows
)

const (
	defaultAddr    = "127.0.0.1:7400"
	defaultTimeout = 10 * time.Second
)

// surroundings is what a run of the command touches beside the network and files.
type surroundings struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	// Nil where this build cannot open a data directory.
	checkOffline offlineChecker
}

// cli is one run of the command.
type cli struct {
	surroundings
	out printer

	addr    string
	timeout time.Duration
	format  string

	// Set once cobra has accepted the command line: what fails before is a usage error.
	started bool
	conn    *grpc.ClientConn
}

// run executes one command line (without the program's name) and returns the exit code.
func run(ctx context.Context, args []string, s surroundings) int {
	c := &cli{surroundings: s}
	root := c.rootCommand()
	root.SetArgs(shieldNegatives(root, args))
	root.SetIn(s.stdin)
	root.SetOut(s.stdout)
	root.SetErr(s.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if c.conn != nil {
		_ = c.conn.Close() // the calls are over; nothing is lost by a failed close
	}
	return c.exitCode(cmd, err)
}

func (c *cli) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "liana",
		Short: "Command-line client of Liana, a store for likes, favourites and follows",
		Long: `Command-line client of Liana, a store for likes, favourites and follows.

Vertices are written type:id, for example user:42. Times are RFC 3339
("2013-09-01T12:00:00Z"), a date, an integer (microseconds since 1970), an
integer with a unit (1378036800s, 1378036800000ms, …us), "now", or relative to
now ("-1h", "-30d", "+1d").

Exit codes: 0 ok, 1 the server refused or failed, 2 wrong usage, 3 an import
skipped rows.`,
		Example: `  liana demo
  liana edge add user:42 like note:7
  liana edge count note:7 like --in
  liana edge list note:7 like --in --limit 10`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(c.checkRootFlags(), cmd.ValidateFlagGroups()); err != nil {
				return err
			}
			c.started = true
			c.out = printer{w: c.stdout, json: c.format == "json"}
			return nil
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&c.addr, "addr", defaultAddr, "address of lianad (host:port)")
	flags.DurationVar(&c.timeout, "timeout", defaultTimeout, "longest wait for one call")
	flags.StringVarP(&c.format, "output-format", "o", "table", "table or json (one JSON document)")
	root.AddCommand(
		c.edgeCommand(), c.traverseCommand(), c.vertexCommand(), c.intersectCommand(), c.differenceCommand(), c.unionCommand(), c.watchCommand(), c.counterCommand(), c.importCommand(), c.exportCommand(),
		c.checkCommand(), c.clusterCommand(), c.cacheCommand(), c.schemaCommand(), c.statusCommand(), c.demoCommand(), c.versionCommand(),
	)
	return root
}

func (c *cli) checkRootFlags() error {
	if c.format != "table" && c.format != "json" {
		return usagef("-o: want table or json, got %q", c.format)
	}
	if c.timeout <= 0 {
		return usagef("--timeout: want a duration above 0, such as 10s, got %s", c.timeout)
	}
	return nil
}

// group makes a command that only holds others. Cobra would answer a wrong name
// below it with the help text and success.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q for %q", args[0], cmd.CommandPath())
			}
			return usagef("%q needs one of its commands", cmd.CommandPath())
		},
	}
	cmd.AddCommand(children...)
	return cmd
}

// takesNegatives marks commands whose last argument is a number that may be negative.
const takesNegatives = "liana.takes-negatives"

var negativeNumber = regexp.MustCompile(`^-[0-9]+$`)

// shieldNegatives moves a negative number behind "--" where it is the argument of
// a command so marked: otherwise -3 would be read as a flag. The number is the last
// argument of those commands, so the order of the arguments stays.
func shieldNegatives(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil || cmd.Annotations[takesNegatives] == "" {
		return args
	}
	var kept, moved, tail []string
	for i, arg := range args {
		if arg == "--" {
			tail = args[i+1:]
			break
		}
		if negativeNumber.MatchString(arg) && (i == 0 || !wantsValue(cmd, args[i-1])) {
			moved = append(moved, arg)
		} else {
			kept = append(kept, arg)
		}
	}
	if len(moved)+len(tail) == 0 {
		return kept
	}
	return append(append(append(kept, "--"), moved...), tail...)
}

// wantsValue says whether arg is a flag whose value is the next argument.
func wantsValue(cmd *cobra.Command, arg string) bool {
	name, long := strings.CutPrefix(arg, "--")
	if !long || strings.Contains(name, "=") {
		return false
	}
	flag := cmd.Flags().Lookup(name)
	if flag == nil {
		flag = cmd.InheritedFlags().Lookup(name)
	}
	return flag != nil && flag.NoOptDefVal == ""
}

// exitCode prints err, if there is one, and returns the exit code.
func (c *cli) exitCode(cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	var exit *exitError
	var usage *usageError
	switch {
	case errors.As(err, &exit):
		if exit.err != nil {
			c.printError(exit.err)
		}
		return exit.code
	case errors.As(err, &usage) || !c.started:
		fmt.Fprintf(c.stderr, "error: %v\n", err)
		fmt.Fprintf(c.stderr, "run '%s --help' for usage\n", cmd.CommandPath())
		return exitUsage
	default:
		c.printError(err)
		return exitFailed
	}
}

// stderrIsTerminal decides between a moving bar and a line now and then.
func (c *cli) stderrIsTerminal() bool {
	file, ok := c.stderr.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && file.Name() != os.DevNull
}
