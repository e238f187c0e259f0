// Command liana is the command-line client of Liana: every call of the API,
// import and export of edges, and the check of a node or of a data directory.
// DESIGN.md beside this file tells how it is built.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker (see the Makefile).
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the command winds down by itself; a second one ends it at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], surroundings{
		stdin:        os.Stdin,
		stdout:       os.Stdout,
		stderr:       os.Stderr,
		checkOffline: checkDirectoryOffline,
	}))
}
