package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"
)

// importRun is the state of one import.
type importRun struct {
	*cli
	stop     bool
	bar      *progress
	progress progressFile
	// What is settled so far; the newest of it is on disk.
	checkpoint checkpoint
	counts     counts
	// Under policy stop, the checkpoint stays before the first bad row.
	frozen         bool
	inversePending uint64
	earliest       int64 // the earliest time sent, or 0

	rejectsFile *os.File
	rejects     *csv.Writer // nil: standard error
}

// resume takes over the checkpoint of an earlier run where it fits.
func (r *importRun) resume(fresh bool) {
	if fresh {
		return
	}
	earlier, err := loadCheckpoint(r.progress.name)
	if earlier == nil && err == nil {
		return
	}
	reason := ""
	if err != nil {
		reason = err.Error()
	} else {
		reason = earlier.fits(&r.checkpoint)
	}
	if reason != "" {
		r.say("%s is not used: %s; starting from the beginning", r.progress.name, reason)
		return
	}
	r.checkpoint, r.counts, r.bar.before = *earlier, earlier.Counts, earlier.Counts.Read
	r.say("going on behind line %d (%d rows read before)", r.checkpoint.At.Line, r.counts.Read)
}

// say tells something beside the result.
func (r *importRun) say(format string, args ...any) {
	r.bar.clear()
	fmt.Fprintf(r.stderr, format+"\n", args...)
}

// openRejects opens the rejects file and takes away what an interrupted run wrote to
// it behind its last checkpoint.
func (r *importRun) openRejects(name string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	r.rejectsFile, r.rejects = f, csv.NewWriter(f)
	size := r.checkpoint.RejectsSize
	if info, err := f.Stat(); err != nil || info.Size() < size {
		return errors.Join(fmt.Errorf("%s is not the rejects file of the interrupted import: use --no-resume", name), err, f.Close())
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	if _, err := f.Seek(size, io.SeekStart); err != nil {
		return err
	}
	if size == 0 {
		return r.rejects.Write([]string{"line", "reason", "row"})
	}
	return nil
}

// source reads the file from the checkpoint on.
func (r *importRun) source(file *importFile, flags *importFlags) (*rowSource, error) {
	at := r.checkpoint.At
	if at.Offset > 0 {
		if err := file.skip(at.Offset); err != nil {
			return nil, err
		}
	}
	source := &rowSource{
		records: newRecordReader(newLineReader(file.unpacked, at), flags.mapping.Delimiter),
		mapping: &flags.mapping, stop: r.stop, batchRows: flags.batch, share: file.share, at: at,
	}
	if at.Line == 0 && flags.mapping.Header {
		return source, source.skipHeader()
	}
	return source, nil
}

// settled accounts for a batch and now and then writes the checkpoint.
func (r *importRun) settled(b *batch, s settlement) error {
	r.counts.Read += b.rows
	r.counts.Created += s.created
	r.counts.AlreadyThere += s.alreadyThere
	r.inversePending += s.inversePending
	for _, m := range b.mutations {
		if m.Time != 0 && (r.earliest == 0 || m.Time < r.earliest) {
			r.earliest = m.Time
		}
	}
	rejects := slices.Concat(b.rejects, s.rejects)
	slices.SortFunc(rejects, func(a, b reject) int { return cmp.Compare(a.line, b.line) })
	for _, reject := range rejects {
		if err := r.tell(reject); err != nil {
			return err
		}
	}
	r.bar.update(r.counts.Read, b.share)
	if len(rejects) > 0 && r.stop {
		r.frozen = true
		return &badRow{rejects[0]}
	}
	if r.frozen {
		return nil
	}
	r.checkpoint.At, r.checkpoint.Counts = b.after, r.counts
	if r.progress.due() {
		return r.save()
	}
	return nil
}

// tell counts a rejected row and writes it to the rejects file or the standard error.
func (r *importRun) tell(bad reject) error {
	r.counts.Rejected++
	switch {
	case r.rejects == nil && r.stop:
		return nil // the error with which the import ends says it
	case r.rejects == nil:
		r.say("line %d: %s: %q", bad.line, bad.reason, bad.text)
		return nil
	}
	err := r.rejects.Write([]string{strconv.FormatUint(bad.line, 10), bad.reason, string(bad.text)})
	if err != nil {
		return fmt.Errorf("writing the rejects file: %w", err)
	}
	return nil
}

func (r *importRun) save() error {
	if r.rejects != nil && !r.frozen {
		r.rejects.Flush()
		size, err := r.rejectsFile.Seek(0, io.SeekCurrent)
		if err := errors.Join(r.rejects.Error(), err); err != nil {
			return fmt.Errorf("writing the rejects file: %w", err)
		}
		r.checkpoint.RejectsSize = size
	}
	return r.progress.save(&r.checkpoint)
}

// end closes the import: it writes or removes the progress, prints the summary and
// turns err into the exit code.
func (r *importRun) end(err error) error {
	r.bar.clear()
	var bad *badRow
	if errors.As(err, &bad) && !r.frozen {
		// The source stopped at this row: it was read, and rejected, but comes again.
		r.frozen = true
		r.counts.Read++
		if tellErr := r.tell(bad.reject); tellErr != nil {
			err = errors.Join(err, tellErr)
		}
	}
	keepErr := r.keep(err == nil)
	printErr := r.summary()
	switch {
	case !r.counts.addUp():
		return fmt.Errorf("bug: the rows do not add up: %+v", r.counts)
	case bad != nil:
		return fmt.Errorf("stopped at a bad row (those before it are in): %w", err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted behind line %d: run the same command again to go on", r.checkpoint.At.Line)
	case err != nil:
		return err
	case keepErr != nil || printErr != nil:
		return errors.Join(keepErr, printErr)
	case r.counts.Rejected > 0:
		return &exitError{code: exitPartial}
	}
	return nil
}

// keep removes the progress of a complete import, or else saves it, and closes the
// rejects file.
func (r *importRun) keep(complete bool) error {
	var err error
	if complete {
		err = r.progress.remove()
	} else {
		err = r.save()
	}
	if r.rejectsFile == nil {
		return err
	}
	r.rejects.Flush()
	return errors.Join(err, r.rejects.Error(), r.rejectsFile.Close())
}

// early is a time before which likes hardly were: an unit mistaken shows by it.
const early = int64(10 * 365 * 24 * time.Hour / time.Microsecond)

func (r *importRun) summary() error {
	if r.inversePending > 0 {
		r.say("of the rows created, the inverse of %d follows later by itself", r.inversePending)
	}
	if r.earliest != 0 && r.earliest < early {
		r.say("warning: the earliest time is %s; is the unit right (time_s, time_ms, time_us)?", timeText(r.earliest))
	}
	c := r.counts
	return r.out.value(c, func(w io.Writer) {
		fmt.Fprintf(w, "read %d = created %d + already there %d + rejected %d\n", c.Read, c.Created, c.AlreadyThere, c.Rejected)
	})
}
