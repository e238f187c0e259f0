package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	lianav1 "github.com/lianadb/liana/proto/liana/v1"
)

// exportStall is how long a server may prepare one message of an export.
const exportStall = 2 * time.Minute

// exportSummary is what -o json prints beside a file.
type exportSummary struct {
	Edges uint64 `json:"edges"`
	File  string `json:"file"`
}

// exportFlags are the flags of `export edges`.
type exportFlags struct {
	kind, format, file string
}

func (c *cli) exportCommand() *cobra.Command {
	flags := new(exportFlags)
	edges := &cobra.Command{
		Use:   "edges",
		Short: "Write all edges as CSV or JSON lines",
		Long: `Write all edges, by source vertex. CSV has the columns src,type,dst,time,properties:
vertices as type:id, time in microseconds since 1970, properties as a JSON object.
JSON lines hold one edge each, as the API's Edge.

With --output the data goes to a temporary file that gets its name when it is
complete; otherwise to the standard output.`,
		Example: `  liana export edges --output edges.csv
  liana export edges --type like --format jsonl | gzip > likes.jsonl.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if flags.format != "csv" && flags.format != "jsonl" {
				return usagef("--format: want csv or jsonl, got %q", flags.format)
			}
			return c.export(cmd.Context(), flags, c.stallLimit(cmd, exportStall))
		},
	}
	edges.Flags().StringVar(&flags.kind, "type", "", "only edges of this type")
	edges.Flags().StringVar(&flags.format, "format", "csv", "csv or jsonl")
	edges.Flags().StringVar(&flags.file, "output", "", "write to this file (default: standard output)")
	return group("export", "Write edges to a file", edges)
}

func (c *cli) export(ctx context.Context, flags *exportFlags, stall time.Duration) error {
	if flags.file == "" {
		n, err := c.exportTo(ctx, c.stdout, flags, stall)
		if err == nil && !c.out.json {
			fmt.Fprintf(c.stderr, "%d edges exported\n", n)
		}
		return err
	}
	var n uint64
	err := writeWhole(flags.file, func(w io.Writer) (err error) {
		n, err = c.exportTo(ctx, w, flags, stall)
		return err
	})
	if err != nil {
		return err
	}
	return c.out.value(exportSummary{n, flags.file}, func(w io.Writer) {
		fmt.Fprintf(w, "%d edges exported to %s\n", n, flags.file)
	})
}

// writeWhole writes a file under a temporary name beside it and renames it once it is
// complete and durable: nobody sees half of it, and an older file stays until then.
func writeWhole(name string, fill func(w io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.tmp")
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := fill(f); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// exportTo writes the edges to w and returns their number.
func (c *cli) exportTo(ctx context.Context, w io.Writer, flags *exportFlags, stall time.Duration) (uint64, error) {
	client, err := c.admin()
	if err != nil {
		return 0, err
	}
	ctx, dog, cancel := newWatchdog(ctx, stall)
	defer cancel()
	stream, err := client.ExportEdges(ctx, &lianav1.ExportEdgesRequest{Type: flags.kind})
	if err != nil {
		return 0, err
	}
	edges := newEdgeWriter(flags.format, w)
	bar := c.newProgress("edges")
	defer bar.clear()
	var n uint64
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && errors.Is(context.Cause(ctx), errStalled) {
			return n, fmt.Errorf("export: %w for %s", errStalled, stall)
		}
		if err != nil {
			return n, err
		}
		dog.feed()
		for _, e := range answer.GetEdges() {
			if err := edges.write(e); err != nil {
				return n, fmt.Errorf("writing the export: %w", err)
			}
			n++
		}
		bar.update(n, -1)
	}
	if err := edges.flush(); err != nil {
		return n, fmt.Errorf("writing the export: %w", err)
	}
	return n, nil
}

// edgeWriter writes edges in one format. An error of write may show as late as in flush.
type edgeWriter interface {
	write(e *lianav1.Edge) error
	flush() error
}

func newEdgeWriter(format string, w io.Writer) edgeWriter {
	buffered := bufio.NewWriterSize(w, 1<<16)
	if format == "jsonl" {
		return edgeLines{buffered}
	}
	table := csv.NewWriter(buffered)
	_ = table.Write([]string{"src", "type", "dst", "time", "properties"}) // buffered; flush tells
	return edgeTable{table, buffered}
}

type edgeLines struct{ w *bufio.Writer }

func (l edgeLines) write(e *lianav1.Edge) error {
	text, err := messageJSON(e)
	if err != nil {
		return err
	}
	_, err = l.w.Write(append(text, '\n'))
	return err
}

func (l edgeLines) flush() error { return l.w.Flush() }

type edgeTable struct {
	*csv.Writer
	w *bufio.Writer
}

func (t edgeTable) write(e *lianav1.Edge) error {
	return t.Write([]string{vertexText(e.GetSrc()), e.GetType(), vertexText(e.GetDst()),
		strconv.FormatInt(e.GetTime(), 10), propertiesText(e.GetProperties())})
}

func (t edgeTable) flush() error {
	t.Flush()
	return errors.Join(t.Error(), t.w.Flush())
}
