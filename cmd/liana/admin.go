package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

func (c *cli) schemaCommand() *cobra.Command {
	show := &cobra.Command{
		Use:   "show",
		Short: "Print the schema as YAML, in the form that lianad start --schema reads",
		Example: `  liana schema show
  liana schema show > schema.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := ask(cmd.Context(), c, c.admin, lianav1.AdminClient.GetSchema, new(lianav1.GetSchemaRequest))
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) {
				fmt.Fprintln(w, strings.TrimSuffix(answer.GetYaml(), "\n"))
			})
		},
	}
	put := &cobra.Command{
		Use:   "put FILE",
		Short: "Put a schema into force on the whole cluster",
		Long: `Put a schema into force on the whole cluster. It may only add to the one in force:
begin from what "liana schema show" prints. "-" reads standard input.`,
		Example: "  liana schema show > schema.yaml\n  liana schema put schema.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readText(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			answer, err := ask(cmd.Context(), c, c.admin, lianav1.AdminClient.PutSchema, &lianav1.PutSchemaRequest{Yaml: string(text)})
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) {
				if !answer.GetChanged() {
					fmt.Fprintf(w, "version %d says the same already\n", answer.GetVersion())
					return
				}
				fmt.Fprintf(w, "version %d is in force\n", answer.GetVersion())
			})
		},
	}
	return group("schema", "Show and extend the schema", show, put)
}

func readText(stdin io.Reader, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

func (c *cli) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show the node and its shards",
		Example: `  liana status`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := ask(cmd.Context(), c, c.admin, lianav1.AdminClient.GetStatus, new(lianav1.GetStatusRequest))
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) { statusTable(w, answer) })
		},
	}
}

func statusTable(w io.Writer, status *lianav1.GetStatusResponse) {
	fmt.Fprintf(w, "version\t%s\ncluster\t%s\nnode\t%s\n\n", status.GetVersion(), status.GetClusterId(), status.GetNodeId())
	fmt.Fprintln(w, "SHARD\tSLOTS\tLEADER\tAPPLIED\tPOSITION\tOUTBOX\tSTATE")
	for _, shard := range status.GetShards() {
		state := "well"
		if shard.GetFault() != "" {
			state = "FAULT: " + shard.GetFault()
		}
		for _, b := range shard.GetBackfills() {
			state += fmt.Sprintf(", counts %s %s (%.0f %%)", b.GetVertexType(), b.GetMetric(), 100*b.GetDone())
		}
		fmt.Fprintf(w, "%d\t%d-%d\t%s\t%d\t%d\t%d\t%s\n", shard.GetId(), shard.GetFirstSlot(), shard.GetLastSlot(),
			yesNo(shard.GetLeader()), shard.GetApplied(), shard.GetPosition(), shard.GetOutboxPending(), state)
	}
}

// buildVersion is what `liana version` prints.
type buildVersion struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	API     string `json:"api"`
}

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this client",
		Example: `  liana version`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion{Version: version, Go: runtime.Version(), API: "liana.v1"}
			return c.out.value(v, func(w io.Writer) {
				fmt.Fprintf(w, "liana %s (%s, API %s)\n", v.Version, v.Go, v.API)
			})
		},
	}
}
