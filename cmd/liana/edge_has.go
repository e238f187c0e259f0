package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// membership is the question of `edge has`.
type membership struct {
	src         *lianav1.Vertex
	kind        string
	dsts        []*lianav1.Vertex
	consistency *lianav1.Consistency
}

func parseMembership(args []string) (*membership, error) {
	src, err := parseVertex("SRC", args[0])
	if err != nil {
		return nil, err
	}
	m := &membership{src: src, kind: args[1]}
	for _, arg := range args[2:] {
		dst, err := parseVertex("DST", arg)
		if err != nil {
			return nil, err
		}
		if len(m.dsts) > 0 && dst.Type != m.dsts[0].Type {
			return nil, usagef("DST: want vertices of one type, got %s and %s", m.dsts[0].Type, dst.Type)
		}
		m.dsts = append(m.dsts, dst)
	}
	return m, nil
}

func (c *cli) edgeHasCommand() *cobra.Command {
	flags := new(readFlags)
	cmd := &cobra.Command{
		Use:   "has SRC TYPE DST [DST...]",
		Short: "Test whether edges exist",
		Example: `  liana edge has user:42 like note:7
  liana edge has user:42 like note:7 note:8 note:9 -o json`,
		Args: cobra.MinimumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			question, err := parseMembership(args)
			if err != nil {
				return err
			}
			if question.consistency, err = flags.consistency(); err != nil {
				return err
			}
			client, err := c.graph()
			if err != nil {
				return err
			}
			return c.has(cmd.Context(), client, question)
		},
	}
	flags.register(cmd)
	return cmd
}

// has asks for one edge, or for many at once. The call for many carries ids only, so
// the call for one goes first in any case: it checks the types of the vertices.
func (c *cli) has(ctx context.Context, client lianav1.GraphClient, m *membership) error {
	one, err := call(ctx, c, client.HasEdge, &lianav1.HasEdgeRequest{
		Src: m.src, Type: m.kind, Dst: m.dsts[0], Consistency: m.consistency})
	if err != nil {
		return err
	}
	if len(m.dsts) == 1 {
		return c.out.message(one, func(w io.Writer) { fmt.Fprintln(w, yesNo(one.GetExists())) })
	}
	request := &lianav1.HasEdgesRequest{Type: m.kind, SrcIds: []uint64{m.src.Id}, Consistency: m.consistency}
	for _, dst := range m.dsts {
		request.DstIds = append(request.DstIds, dst.Id)
	}
	many, err := call(ctx, c, client.HasEdges, request)
	if err != nil {
		return err
	}
	if len(many.GetExists()) != len(m.dsts) {
		return fmt.Errorf("the server answered %d of %d questions", len(many.GetExists()), len(m.dsts))
	}
	return c.out.message(many, func(w io.Writer) {
		fmt.Fprintln(w, "DST\tEXISTS")
		for i, exists := range many.GetExists() {
			fmt.Fprintf(w, "%s\t%s\n", vertexText(m.dsts[i]), yesNo(exists))
		}
	})
}
