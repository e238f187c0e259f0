package resp

import (
	"bytes"

	"github.com/lianadb/liana/graph"
)

// transaction is what MULTI has gathered. All its keys have to lie in one slot: then it is
// part of one log entry, and takes effect as a whole.
type transaction struct {
	open    bool
	spoiled bool // a command was refused
	queue   [][][]byte
	bytes   int
}

// maxQueue bounds the commands of a transaction.
const maxQueue = 1024

const (
	errCrossSlot = "CROSSSLOT Keys in request don't hash to the same slot"
	errExecAbort = "EXECABORT Transaction discarded because of previous errors."
)

// queue keeps a command for EXEC.
func (p *planner) queue(args [][]byte) {
	tx := &p.c.tx
	size := 0
	for _, a := range args {
		size += len(a) + 24
	}
	if len(tx.queue) >= maxQueue || tx.bytes+size > p.c.server.cfg.MaxCommandBytes {
		p.fail("ERR the transaction is too large")
		return
	}
	kept := make([][]byte, len(args))
	for i, a := range args {
		kept[i] = bytes.Clone(a)
	}
	tx.queue = append(tx.queue, kept)
	tx.bytes += size
	p.add(func(c *conn, _ *step, _ []graph.EditResult) { c.w.simple("QUEUED") })
}

func planMulti(p *planner, _ [][]byte) {
	if p.c.tx.open {
		// Redis refuses this one without giving the transaction up.
		p.add(replyError).text = "ERR MULTI calls can not be nested"
		return
	}
	p.c.tx = transaction{open: true}
	p.add(replyOK)
}

func planDiscard(p *planner, _ [][]byte) {
	if !p.c.tx.open {
		p.fail("ERR DISCARD without MULTI")
		return
	}
	p.c.tx = transaction{}
	p.add(replyOK)
}

func planWatch(p *planner, _ [][]byte) {
	if p.c.tx.open {
		p.add(replyError).text = "ERR WATCH inside MULTI is not allowed"
		return
	}
	p.fail("ERR WATCH is not supported: use SET NX or XX, or a transaction on one key")
}

func planUnwatch(p *planner, _ [][]byte) { p.add(replyOK) }

func planExec(p *planner, _ [][]byte) {
	tx := p.c.tx
	if !tx.open {
		p.fail("ERR EXEC without MULTI")
		return
	}
	p.c.tx = transaction{}
	if tx.spoiled {
		p.fail(errExecAbort)
		return
	}
	steps, from := len(p.b.steps), len(p.b.edits)
	p.add(func(c *conn, s *step, _ []graph.EditResult) { c.w.array(int(s.n)) }).n = int64(len(tx.queue))
	for _, args := range tx.queue {
		p.command(args)
	}
	if !p.oneSlot(from) || len(p.b.edits)-from > maxEdits {
		p.b.cutBack(steps, from)
		p.from, p.cmd = from, p.c.server.catalog.byName["exec"]
		p.fail(errCrossSlot)
		return
	}
	p.b.whole = append(p.b.whole, span{from, len(p.b.edits)})
}

// oneSlot reports whether the edits from there on are all of one slot.
func (p *planner) oneSlot(from int) bool {
	for i := from + 1; i < len(p.b.edits); i++ {
		if p.b.edits[i].Counter.Slot() != p.b.edits[from].Counter.Slot() {
			return false
		}
	}
	return true
}
