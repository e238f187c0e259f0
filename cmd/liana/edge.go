package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

func (c *cli) edgeCommand() *cobra.Command {
	return group("edge", "Add, delete, test, count and list edges",
		c.edgeAddCommand(), c.edgeUpdateCommand(), c.edgeDeleteCommand(), c.edgeHasCommand(),
		c.edgeGetCommand(), c.edgeCountCommand(), c.edgeListCommand())
}

// edgeFlags are the flags of commands that write an edge with its time and properties.
type edgeFlags struct {
	waitFlag
	time       string
	properties []string
}

func (f *edgeFlags) register(cmd *cobra.Command) {
	f.waitFlag.register(cmd)
	cmd.Flags().StringVar(&f.time, "time", "", "time of the edge (default: now, by the server)")
	cmd.Flags().StringArrayVar(&f.properties, "prop", nil, "property as name=value; may be repeated")
}

// edge builds the edge from the arguments SRC TYPE DST and the flags.
func (f *edgeFlags) edge(args []string) (*lianav1.Edge, lianav1.Wait, error) {
	src, dst, err := parseEnds(args)
	if err != nil {
		return nil, 0, err
	}
	e := &lianav1.Edge{Src: src, Type: args[1], Dst: dst}
	if f.time != "" {
		if e.Time, err = parseEdgeTime("--time", f.time, time.Now()); err != nil {
			return nil, 0, err
		}
	}
	if e.Properties, err = parseProperties(f.properties); err != nil {
		return nil, 0, err
	}
	wait, err := f.wait()
	return e, wait, err
}

// parseEnds reads the vertices of the arguments SRC TYPE DST.
func parseEnds(args []string) (src, dst *lianav1.Vertex, err error) {
	if src, err = parseVertex("SRC", args[0]); err != nil {
		return nil, nil, err
	}
	if dst, err = parseVertex("DST", args[2]); err != nil {
		return nil, nil, err
	}
	return src, dst, nil
}

// written is the answer of a write.
type written interface {
	proto.Message
	GetChanged() bool
	GetToken() string
}

// printWrite prints the answer of a write that had no error.
func (c *cli) printWrite(answer written, err error) error {
	if err != nil {
		return err
	}
	return c.out.message(answer, func(w io.Writer) {
		fmt.Fprintf(w, "CHANGED\tTOKEN\n%s\t%s\n", yesNo(answer.GetChanged()), answer.GetToken())
	})
}

func (c *cli) edgeAddCommand() *cobra.Command {
	flags := new(edgeFlags)
	cmd := &cobra.Command{
		Use:   "add SRC TYPE DST",
		Short: "Add an edge; on an edge that exists it changes nothing",
		Example: `  liana edge add user:42 like note:7
  liana edge add user:42 like note:7 --time 2013-09-01T12:00:00Z --prop device=phone`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			edge, wait, err := flags.edge(args)
			if err != nil {
				return err
			}
			return c.printWrite(ask(cmd.Context(), c, c.graph, lianav1.GraphClient.AddEdge,
				&lianav1.AddEdgeRequest{Edge: edge, Wait: wait}))
		},
	}
	flags.register(cmd)
	return cmd
}

func (c *cli) edgeUpdateCommand() *cobra.Command {
	flags := new(edgeFlags)
	cmd := &cobra.Command{
		Use:   "update SRC TYPE DST",
		Short: "Replace time and properties of an edge that exists",
		Long: `Replace time and properties of an edge that exists. Both are replaced: without
--time the edge moves to now, without --prop it loses its properties.`,
		Example: `  liana edge update user:42 like note:7 --time now --prop device=tablet`,
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			edge, wait, err := flags.edge(args)
			if err != nil {
				return err
			}
			return c.printWrite(ask(cmd.Context(), c, c.graph, lianav1.GraphClient.UpdateEdge,
				&lianav1.UpdateEdgeRequest{Edge: edge, Wait: wait}))
		},
	}
	flags.register(cmd)
	return cmd
}

func (c *cli) edgeDeleteCommand() *cobra.Command {
	flags := new(waitFlag)
	cmd := &cobra.Command{
		Use:     "delete SRC TYPE DST",
		Short:   "Delete an edge; on an absent edge it changes nothing",
		Example: `  liana edge delete user:42 like note:7`,
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			src, dst, err := parseEnds(args)
			if err != nil {
				return err
			}
			wait, err := flags.wait()
			if err != nil {
				return err
			}
			return c.printWrite(ask(cmd.Context(), c, c.graph, lianav1.GraphClient.DeleteEdge,
				&lianav1.DeleteEdgeRequest{Src: src, Type: args[1], Dst: dst, Wait: wait}))
		},
	}
	flags.register(cmd)
	return cmd
}

func (c *cli) edgeGetCommand() *cobra.Command {
	flags := new(readFlags)
	cmd := &cobra.Command{
		Use:     "get SRC TYPE DST",
		Short:   "Show one edge with its time and properties",
		Example: `  liana edge get user:42 like note:7`,
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			src, dst, err := parseEnds(args)
			if err != nil {
				return err
			}
			consistency, err := flags.consistency()
			if err != nil {
				return err
			}
			answer, err := ask(cmd.Context(), c, c.graph, lianav1.GraphClient.GetEdge,
				&lianav1.GetEdgeRequest{Src: src, Type: args[1], Dst: dst, Consistency: consistency})
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) {
				fmt.Fprintf(w, "SRC\tTYPE\tDST\tTIME\tPROPERTIES\n%s\n", edgeRow(answer.GetEdge()))
			})
		},
	}
	flags.register(cmd)
	return cmd
}

func (c *cli) edgeCountCommand() *cobra.Command {
	flags := new(readFlags)
	var in bool
	var since, until string
	cmd := &cobra.Command{
		Use:   "count VERTEX TYPE",
		Short: "Count the edges of a vertex, all or in a window of time",
		Example: `  liana edge count note:7 like --in
  liana edge count note:7 like --in --since 2013-03-01 --until 2013-04-01`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			vertex, err := parseVertex("VERTEX", args[0])
			if err != nil {
				return err
			}
			request := &lianav1.CountEdgesRequest{Vertex: vertex, Type: args[1], Direction: direction(in)}
			if request.Window, err = parseWindow(since, until, time.Now()); err != nil {
				return err
			}
			if request.Consistency, err = flags.consistency(); err != nil {
				return err
			}
			answer, err := ask(cmd.Context(), c, c.graph, lianav1.GraphClient.CountEdges, request)
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) { fmt.Fprintln(w, answer.GetCount()) })
		},
	}
	flags.register(cmd)
	registerDirection(cmd, &in)
	registerWindow(cmd, &since, &until)
	return cmd
}

func registerDirection(cmd *cobra.Command, in *bool) {
	cmd.Flags().BoolVar(in, "in", false, "the edges that reach the vertex (default: those that leave it)")
}

func registerWindow(cmd *cobra.Command, since, until *string) {
	cmd.Flags().StringVar(since, "since", "", "only edges at this time or later")
	cmd.Flags().StringVar(until, "until", "", "only edges before this time")
}

func direction(in bool) lianav1.Direction {
	if in {
		return lianav1.Direction_IN
	}
	return lianav1.Direction_OUT
}
