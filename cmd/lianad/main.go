// Command lianad is a node of Liana. It wires the packages together: the data
// directory, the engines, the shards, the domain and the doors. DESIGN.md beside
// this file tells in which order, and how it ends.
package main

import (
	"os"
)

// version is set by the linker (see the Makefile).
var version = "devel"

// Exit codes.
const (
	exitOK     = 0 // stopped, everything in flight was answered
	exitFailed = 1 // could not start, or had to end
	exitUsage  = 2 // wrong flags or configuration
	exitForced = 3 // stopped with calls unanswered: a second signal, or out of time
)

func main() {
	os.Exit(run(host{}, os.Args[1:], os.Stdout, os.Stderr))
}
