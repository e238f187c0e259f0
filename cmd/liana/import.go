package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// importFlags are the flags of `import edges`.
type importFlags struct {
	waitFlag
	loadFlags
	mapping      mapping
	gzip         bool
	policy       string
	rejectsFile  string
	noResume     bool
	progressFile string
}

// loadFlags are the flags of commands that send many edges.
type loadFlags struct {
	batch, inFlight int
}

func (f *loadFlags) register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.batch, "batch", 1000, "edges in one request (1 to 10000)")
	cmd.Flags().IntVar(&f.inFlight, "in-flight", 8, "requests on the way at once (1 to 256)")
}

func (f *loadFlags) check() error {
	if f.batch < 1 || f.batch > maxBatch {
		return usagef("--batch: want 1 to %d, got %d", maxBatch, f.batch)
	}
	if f.inFlight < 1 || f.inFlight > maxInFlight {
		return usagef("--in-flight: want 1 to %d, got %d", maxInFlight, f.inFlight)
	}
	return nil
}

func (f *importFlags) register(cmd *cobra.Command) {
	f.waitFlag.register(cmd)
	f.loadFlags.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.mapping.Type, "type", "", "edge type, such as like")
	flags.StringVar(&f.mapping.From, "from", "", "vertex type of the column src, such as user")
	flags.StringVar(&f.mapping.To, "to", "", "vertex type of the column dst, such as note")
	flags.StringVar(&f.mapping.Columns, "columns", "src,dst", "what the columns hold: "+columnForms)
	flags.StringVar(&f.mapping.Delimiter, "delimiter", ",", `what separates columns: one character (CSV with quotes) or several ("::", no quotes); \t is a tab`)
	flags.BoolVar(&f.mapping.Header, "header", false, "pass over the first row")
	flags.BoolVar(&f.gzip, "gzip", false, "the file must be gzip (it is also recognised by itself)")
	flags.StringVar(&f.policy, "policy", "stop", "at a bad row: stop, or skip it and go on")
	flags.StringVar(&f.rejectsFile, "rejects", "", "write bad rows to this CSV file (default: the standard error)")
	flags.StringVar(&f.progressFile, "progress-file", "", "where progress is kept (default: FILE.liana-progress)")
	flags.Bool("resume", true, "go on where an earlier import of the same file ended")
	flags.BoolVar(&f.noResume, "no-resume", false, "start from the beginning")
	cmd.MarkFlagsMutuallyExclusive("resume", "no-resume")
}

func (f *importFlags) check(cmd *cobra.Command) error {
	if f.policy != "stop" && f.policy != "skip" {
		return usagef("--policy: want stop or skip, got %q", f.policy)
	}
	if resume, _ := cmd.Flags().GetBool("resume"); !resume { // --resume=false
		f.noResume = true
	}
	if err := f.loadFlags.check(); err != nil {
		return err
	}
	return f.mapping.compile(time.Now())
}

func (c *cli) importCommand() *cobra.Command {
	flags := new(importFlags)
	edges := &cobra.Command{
		Use:   "edges FILE",
		Short: "Add the edges of a CSV or other column file",
		Long: `Add the edges of a file with one row an edge ("-": the standard input).

Each row is created, already there, or rejected, and the summary counts them:
read = created + already there + rejected. Rejected rows are told with their line
number. Under policy stop the import ends at the first bad row (exit code 1): the
rows before it are in. Under policy skip it goes on (exit code 3 at the end).

Progress is kept beside the file. An import that was interrupted goes on from
there when the same command is run again; a row that was sent but not yet
answered then counts as already there. The progress file goes when all is done.`,
		Example: `  liana import edges ratings.dat --type like --from user --to note --columns src,dst,-,time_s --delimiter '::'
  liana import edges likes.csv.gz --type like --from user --to note --columns src,dst,time --header --policy skip --rejects bad.csv
  liana import edges edges.csv --type like --from user --to note --columns src,type,dst,time,properties --header`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(cmd); err != nil {
				return err
			}
			wait, err := flags.wait()
			if err != nil {
				return err
			}
			client, err := c.graph()
			if err != nil {
				return err
			}
			l := &loader{client: client, wait: wait, inFlight: flags.inFlight, timeout: c.timeout,
				stall: c.stallLimit(cmd, loadStall), retryFor: defaultRetryFor}
			return c.importEdges(cmd.Context(), args[0], flags, l)
		},
	}
	flags.register(edges)
	return group("import", "Add edges from a file", edges)
}

// importEdges runs one import from the opening of the file to the summary.
func (c *cli) importEdges(ctx context.Context, name string, flags *importFlags, l *loader) error {
	file, err := openImport(name, c.stdin, flags.gzip)
	if err != nil {
		return err
	}
	defer file.close()
	cluster, err := c.probe(ctx, l.client, &flags.mapping)
	if err != nil {
		return err
	}
	run := &importRun{cli: c, stop: flags.policy == "stop", bar: c.newProgress("rows"),
		checkpoint: checkpoint{File: file.identity, Mapping: flags.mapping, Cluster: cluster}}
	if name != "-" {
		run.progress.name = flags.progressFile
		if run.progress.name == "" {
			run.progress.name = name + ".liana-progress"
		}
	}
	if err := file.spare(flags.rejectsFile, run.progress); err != nil {
		return err
	}
	if name != "-" {
		run.resume(flags.noResume)
	}
	if err := run.openRejects(flags.rejectsFile); err != nil {
		return err
	}
	source, err := run.source(file, flags)
	if err != nil {
		return run.end(err)
	}
	l.source, l.settled = source, run.settled
	return run.end(l.run(ctx))
}

// probe asks the server two things before the first row is sent: which cluster it is,
// and whether the types fit its schema (rows carry ids only).
func (c *cli) probe(ctx context.Context, client lianav1.GraphClient, m *mapping) (cluster string, err error) {
	admin, err := c.admin()
	if err != nil {
		return "", err
	}
	status, err := call(ctx, c, admin.GetStatus, new(lianav1.GetStatusRequest))
	if err != nil {
		return "", err
	}
	_, err = call(ctx, c, client.HasEdge, &lianav1.HasEdgeRequest{
		Src: &lianav1.Vertex{Type: m.From, Id: 1}, Type: m.Type, Dst: &lianav1.Vertex{Type: m.To, Id: 1}})
	if err != nil && refused(err) {
		return "", annotate(err, fmt.Sprintf("--type %s --from %s --to %s", m.Type, m.From, m.To))
	}
	return status.GetClusterId(), err
}
