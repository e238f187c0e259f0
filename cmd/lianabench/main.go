// Command lianabench measures Liana beside Redis and PostgreSQL: the same
// operations, on the same machine, in turns. It starts private servers on
// 127.0.0.1 and stops all that it started.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	// The first signal ends the run in an orderly way; a second one, at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lianabench:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "lianabench",
		Short: "Measure Liana beside Redis and PostgreSQL",
		Long: `Measure Liana beside Redis and PostgreSQL: the same seeded operations, on the
same machine, in turns of several rounds, with ratios round by round.

Servers are private: started on free ports of 127.0.0.1 in a temporary
directory, stopped and removed at the end, also after an error or Ctrl-C.`,
		Example: `  lianabench run --mix write --targets liana,redis-fsync,postgres --callers 64
  lianabench run --mix write --batch 1000 --targets liana,liana-stream,redis-fsync
  lianabench run --mix feed --rate 5000 --html feed.html
  lianabench celebrity --edges 2000000
  lianabench suite --quick --html suite.html
  lianabench cluster
  lianabench vertex`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newRunCommand(), newCelebrityCommand(), newCurveCommand(), newSizeCommand(), newRawCommand(), newSuiteCommand(), newClusterCommand(),
		newVertexCommand(), newCountersCommand())
	return root
}
