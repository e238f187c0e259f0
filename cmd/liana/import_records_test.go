package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// readAll reads a file from a position to its end: each record as text, with its end.
// A cut file ends with its error.
func readAll(file string, at position, delimiter string) (texts []string, ends []position) {
	r := newRecordReader(newLineReader(strings.NewReader(file[at.Offset:]), at), delimiter)
	for {
		row, err := r.next()
		var bad *rowError
		switch {
		case errors.Is(err, io.EOF):
			return texts, ends
		case errors.As(err, &bad):
			texts = append(texts, fmt.Sprintf("%d bad: %v", row.line, err))
		case err != nil:
			return append(texts, err.Error()), append(ends, position{})
		default:
			texts = append(texts, fmt.Sprintf("%d: %q", row.line, row.fields))
		}
		ends = append(ends, row.after)
	}
}

// checkRestart proves that reading can go on behind any record, as a resumed import does.
func checkRestart(t *testing.T, file, delimiter string) {
	t.Helper()
	texts, ends := readAll(file, position{}, delimiter)
	for i, end := range ends {
		if end == (position{}) {
			continue
		}
		if rest, _ := readAll(file, end, delimiter); fmt.Sprint(rest) != fmt.Sprint(texts[i+1:]) {
			t.Fatalf("file %q behind record %d (%+v):\n%s\nwant\n%s", file, i, end, rest, texts[i+1:])
		}
	}
}

// randomFile is made of the characters that matter.
func randomFile(rng *rand.Rand, n int) string {
	pieces := []string{",", "\"", "\"\"", "\n", "\r\n", "\r", "a", "12", "\ufeff", "::", "\n\n", ",\"x\",", "\"a\nb\""}
	var file strings.Builder
	for range rng.IntN(n) {
		file.WriteString(pieces[rng.IntN(len(pieces))])
	}
	return file.String()
}

func TestRecordsCanBeReadOnBehindAny(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 500 {
		file := randomFile(rng, 40)
		checkRestart(t, file, ",")
		checkRestart(t, file, "::")
	}
}

func TestLongLinesKeepTheirPlaces(t *testing.T) {
	long := strings.Repeat("x", 100_000) // beyond the reader's buffer
	checkRestart(t, "1,2\n1,"+long+"\n3,4\n\""+long+"\n"+long+"\",5\n6,7\n1,"+strings.Repeat("y", maxRecord)+"\n8,9", ",")
}

func FuzzRecords(f *testing.F) {
	f.Add("1,2\n\"a\"\"\nb\",3\r\n", ",")
	f.Add("1::2\n", "::")
	f.Add("\ufeff\"\n\"\n\"x", ",")
	f.Fuzz(func(t *testing.T, file, delimiter string) {
		if (&mapping{Type: "a", From: "b", To: "c", Columns: "src,dst", Delimiter: delimiter}).compile(testNow) == nil {
			checkRestart(t, file, delimiter)
		}
	})
}

func TestRecordsAsTheStandardLibraryWritesThem(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 500 {
		var want [][]string
		for range rng.IntN(8) {
			row := []string{"x"} // an empty record of one field would be a blank line
			for range rng.IntN(4) {
				// csv.Writer turns a lone \r\n inside a field into \n: leave \r out.
				row = append(row, strings.ReplaceAll(randomFile(rng, 6), "\r", ""))
			}
			want = append(want, row)
		}
		var file bytes.Buffer
		w := csv.NewWriter(&file)
		if err := w.WriteAll(want); err != nil {
			t.Fatal(err)
		}
		texts, _ := readAll(file.String(), position{}, ",")
		if len(texts) != len(want) {
			t.Fatalf("%q: got %q", file.String(), texts)
		}
		for i, text := range texts {
			if _, fields, _ := strings.Cut(text, ": "); fields != fmt.Sprintf("%q", want[i]) {
				t.Fatalf("%q: got %s, want %q", file.String(), text, want[i])
			}
		}
	}
}
