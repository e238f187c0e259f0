package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

func (c *cli) cacheCommand() *cobra.Command {
	return group("cache", "Show and change what is cached before the storage",
		c.cacheHotCommand(), c.cacheWarmCommand(), c.cacheStatsCommand(), c.cacheDropCommand())
}

func (c *cli) cache() (lianav1.CacheClient, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	return lianav1.NewCacheClient(conn), nil
}

func (c *cli) cacheHotCommand() *cobra.Command {
	var top uint32
	cmd := &cobra.Command{
		Use:   "hot",
		Short: "List what all gateways together are asked for most",
		Long: `List the entries that all gateways together are asked for most. A row holds the counts
and metrics of a vertex, a window the newest edges of a list, a chunk some peers of one.`,
		Example: "  liana cache hot\n  liana cache hot --top 100 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := ask(cmd.Context(), c, c.cache, lianav1.CacheClient.ListHotKeys, &lianav1.ListHotKeysRequest{Limit: top})
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) { hotTable(w, answer) })
		},
	}
	cmd.Flags().Uint32Var(&top, "top", 20, "how many, at most 4096")
	return cmd
}

func hotTable(w io.Writer, a *lianav1.ListHotKeysResponse) {
	fmt.Fprintln(w, "READS\tVERTEX\tENTRY")
	for _, k := range a.GetKeys() {
		fmt.Fprintf(w, "%d\t%s:%d\t%s\n", k.GetTouches(), k.GetVertex().GetType(), k.GetVertex().GetId(), hotEntry(k))
	}
	silentNodes(w, a.GetUnanswered())
}

func hotEntry(k *lianav1.HotKey) string {
	list := k.GetType() + " " + strings.ToLower(k.GetDirection().String())
	switch k.GetKind() {
	case "window":
		return "window of " + list
	case "chunk":
		return fmt.Sprintf("chunk of %s from id %d", list, k.GetFirstId())
	}
	return k.GetKind()
}

// silentNodes tells of nodes that are missing from an answer.
func silentNodes(w io.Writer, nodes []string) {
	for _, n := range nodes {
		fmt.Fprintf(w, "node %s did not answer\n", n)
	}
}

func (c *cli) cacheWarmCommand() *cobra.Command {
	var top uint32
	cmd := &cobra.Command{
		Use:     "warm",
		Short:   "Load the entries that are read most into Redis",
		Long:    "Load the entries that all gateways together are asked for most into Redis, e.g. after it came back empty.",
		Example: "  liana cache warm\n  liana cache warm --top 4000 --timeout 1m",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := ask(cmd.Context(), c, c.cache, lianav1.CacheClient.WarmCache, &lianav1.WarmCacheRequest{Top: top})
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) {
				fmt.Fprintf(w, "%d of the %d hottest entries are in Redis\n", answer.GetWarm(), answer.GetHot())
				silentNodes(w, answer.GetUnanswered())
			})
		},
	}
	cmd.Flags().Uint32Var(&top, "top", 1000, "how many, at most 4096")
	return cmd
}

func (c *cli) cacheStatsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Show the figures of the caches, by node",
		Long: `Show the figures of the caches of all nodes, each since its start. They are the metrics
liana_cache_…; docs/cache.md explains them.`,
		Example: "  liana cache stats\n  liana cache stats -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := ask(cmd.Context(), c, c.cache, lianav1.CacheClient.GetCacheStats, new(lianav1.GetCacheStatsRequest))
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) { cacheTable(w, answer) })
		},
	}
}

// cacheTable has a line for each figure and a column for each node.
func cacheTable(w io.Writer, a *lianav1.GetCacheStatsResponse) {
	type figure struct{ tier, name, reason string }
	var order []figure
	head := "TIER\tFIGURE"
	values := map[figure][]string{}
	for i, n := range a.GetNodes() {
		head += "\t" + shortNode(n.GetNode(), "?")
		for _, f := range n.GetFigures() {
			k := figure{f.GetTier(), f.GetName(), f.GetReason()}
			if values[k] == nil {
				order = append(order, k)
				values[k] = slices.Repeat([]string{"-"}, len(a.GetNodes()))
			}
			values[k][i] = strconv.FormatFloat(f.GetValue(), 'f', -1, 64)
		}
	}
	fmt.Fprintln(w, head)
	for _, k := range order {
		name := strings.TrimSuffix(k.name, "_total")
		if k.reason != "" {
			name += ": " + k.reason
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", k.tier, name, strings.Join(values[k], "\t"))
	}
	silentNodes(w, a.GetUnanswered())
}

func (c *cli) cacheDropCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "drop VERTEX",
		Short: "Have all that is cached of a vertex read anew",
		Long: `Have all that is cached of a vertex read anew. Answers never need it: it is for entries
that were changed in Redis by hand. In Redis the whole slot of the vertex is emptied, one of 4096.`,
		Example: "  liana cache drop note:7",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := parseVertex("VERTEX", args[0])
			if err != nil {
				return err
			}
			answer, err := ask(cmd.Context(), c, c.cache, lianav1.CacheClient.DropCached, &lianav1.DropCachedRequest{Vertex: v})
			if err != nil {
				return err
			}
			return c.out.message(answer, func(w io.Writer) {
				fmt.Fprintln(w, "dropped")
				silentNodes(w, answer.GetUnanswered())
			})
		},
	}
}
