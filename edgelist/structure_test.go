package edgelist

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestStructure runs scripts whose output shows how a list lies in pages. Their
// commands: "open", with the options of the writer; "insert" and "delete", with
// from, to and step of the ids; "flush", which says what was handed out; "show";
// "list"; "check".
func TestStructure(t *testing.T) {
	datadriven.Walk(t, "testdata/structure", func(t *testing.T, path string) {
		s := &script{t: t, store: newStore(1, 0)}
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	t     *testing.T
	store *memStore
	w     *Writer
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "open":
		opt := DefaultOptions()
		d.MaybeScanArgs(t, "split", &opt.SplitEntries)
		d.MaybeScanArgs(t, "branch", &opt.Branch)
		d.MaybeScanArgs(t, "deltas", &opt.MaxDeltas)
		d.MaybeScanArgs(t, "bytes", &opt.MaxPageBytes)
		if err := opt.Validate(); err != nil {
			return err.Error()
		}
		w, err := OpenWriter(s.store, &opt)
		if err != nil {
			return err.Error()
		}
		s.w = w
		return ""
	case "insert", "delete", "update":
		return s.change(d)
	case "flush":
		log := &sinkLog{Sink: s.store}
		if err := s.w.Flush(log); err != nil {
			return err.Error()
		}
		return strings.Join(log.lines, "\n")
	case "show":
		return s.show()
	case "list":
		return s.list(d)
	case "check":
		stats, err := Check(s.store, s.store.ids)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%+v", stats)
	}
	return "unknown command"
}

func (s *script) change(d *datadriven.TestData) string {
	var from, to, step, props int
	var at int64
	d.ScanArgs(s.t, "from", &from)
	to, step = from, 1
	d.MaybeScanArgs(s.t, "to", &to)
	d.MaybeScanArgs(s.t, "step", &step)
	d.MaybeScanArgs(s.t, "props", &props)
	timed := d.MaybeScanArgs(s.t, "time", &at)
	done := 0
	for id := from; step > 0 && id <= to || step < 0 && id >= to; id += step {
		e := Edge{Peer: uint64(id), Time: int64(1000 + id), Props: slices.Repeat([]byte{'p'}, props)}
		if timed {
			e.Time = at
		}
		var ok bool
		var err error
		switch d.Cmd {
		case "insert":
			ok, err = s.w.Insert(e)
		case "delete":
			_, ok, err = s.w.Delete(e.Peer)
		default:
			_, ok, err = s.w.Update(e)
		}
		if err != nil {
			return err.Error()
		}
		if ok {
			done++
		}
		s.w.SetVersion(s.w.Version() + 1)
	}
	return fmt.Sprintf("%d changed", done)
}

func (s *script) list(d *datadriven.TestData) string {
	var q Query
	var skip int
	limit := 1000
	if d.HasArg("time") {
		q.Order = ByTime
	}
	q.Descending = d.HasArg("desc")
	d.MaybeScanArgs(s.t, "skip", &skip)
	d.MaybeScanArgs(s.t, "limit", &limit)
	d.MaybeScanArgs(s.t, "since", &q.Since)
	d.MaybeScanArgs(s.t, "until", &q.Until)
	q.Skip = uint64(skip)
	var out []string
	for _, e := range collect(s.t, &s.w.List, q, limit) {
		out = append(out, fmt.Sprintf("%d@%d", e.Peer, e.Time))
	}
	return strings.Join(out, " ")
}

// show draws the list as the writer sees it.
func (s *script) show() string {
	var b strings.Builder
	t := s.w.head.tree
	if t == nil {
		fmt.Fprintf(&b, "packed version=%d %s", s.w.Version(), describe(s.w.head))
		return b.String()
	}
	fmt.Fprintf(&b, "tree version=%d count=%d props=%d/%dB next=%d\n", t.version, t.count, t.withProps, t.propBytes, t.next)
	for o := range t.roots {
		s.draw(&b, Order(o), t.roots[o].no, t.roots[o].height, 1)
	}
	return b.String()
}

func (s *script) draw(b *strings.Builder, o Order, no uint32, level uint8, depth int) {
	p, err := s.w.node(o, no, level)
	if err != nil {
		fmt.Fprintln(b, err)
		return
	}
	indent := strings.Repeat("  ", depth)
	if level == 0 {
		fmt.Fprintf(b, "%s%s %s\n", indent, PageID{o, no}, describe(p))
		return
	}
	fmt.Fprintf(b, "%s%s branch of %d, weight %d\n", indent, PageID{o, no}, p.live, p.weight)
	rows := decoded(p)
	for i := range rows.n {
		r := rows.at(i)
		sep := fmt.Sprint(r.id)
		if o == ByTime {
			sep = fmt.Sprintf("%d@%d", r.id, r.time)
		}
		fmt.Fprintf(b, "%s  from %s: %d\n", indent, sep, r.count)
		s.draw(b, o, r.child, level-1, depth+2)
	}
}

// describe writes a page's ids as runs.
func describe(p *Page) string {
	rows := decoded(p)
	var runs []string
	for i := 0; i < rows.n; {
		j := i + 1
		for j < rows.n && rows.cols[colID][j] == rows.cols[colID][j-1]+1 {
			j++
		}
		first, last := rows.cols[colID][i], rows.cols[colID][j-1]
		if first == last {
			runs = append(runs, fmt.Sprint(first))
		} else {
			runs = append(runs, fmt.Sprintf("%d-%d", first, last))
		}
		i = j
	}
	return fmt.Sprintf("%d edges [%s] weight=%d deltas=%d", p.live, strings.Join(runs, " "), p.weight, len(p.deltas))
}

// sinkLog writes down what a Flush hands out.
type sinkLog struct {
	Sink
	lines []string
}

func (s *sinkLog) Put(id PageID, p *Page, value []byte) error {
	s.lines = append(s.lines, fmt.Sprintf("put %s %d bytes", id, len(value)))
	return s.Sink.Put(id, p, value)
}

func (s *sinkLog) Merge(id PageID, p *Page, operand []byte) error {
	s.lines = append(s.lines, fmt.Sprintf("merge %s %d bytes", id, len(operand)))
	return s.Sink.Merge(id, p, operand)
}

func (s *sinkLog) Remove(id PageID) error {
	s.lines = append(s.lines, fmt.Sprintf("remove %s", id))
	return s.Sink.Remove(id)
}
