package main

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// sourceOf reads a file of src,dst,time_s in batches.
func sourceOf(t testing.TB, file io.Reader, delimiter string, batchRows int) *rowSource {
	t.Helper()
	m := &mapping{Type: "like", From: "user", To: "note", Columns: "src,dst,-,time_s", Delimiter: delimiter}
	if err := m.compile(testNow); err != nil {
		t.Fatal(err)
	}
	return &rowSource{records: newRecordReader(newLineReader(file, position{}), delimiter), mapping: m,
		batchRows: batchRows, share: func() float64 { return -1 }}
}

// repeated is a file of n copies of a row, which lies nowhere whole.
type repeated struct {
	row  string
	n    int
	left string
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.left == "" {
		if r.n == 0 {
			return 0, io.EOF
		}
		r.n--
		r.left = r.row
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

func TestSourceHoldsOneBatchAtATime(t *testing.T) {
	const n = 2500
	source := sourceOf(t, &repeated{row: "1::0104257::8::1364690142\n", n: n}, "::", 1000)
	var sizes []int
	for {
		b, err := source.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(b.mutations))
		if b.rows != uint64(len(b.mutations)) || b.after.Line != b.lines[len(b.lines)-1] {
			t.Errorf("%d rows, %d mutations, at %+v", b.rows, len(b.mutations), b.after)
		}
	}
	if len(sizes) != 3 || sizes[0] != 1000 || sizes[2] != 500 {
		t.Errorf("got %d", sizes)
	}
}

func BenchmarkSource(b *testing.B) {
	for name, row := range map[string]string{
		"plain":  "12345::1074638::7::1365029107\n",
		"csv":    "12345,1074638,7,1365029107\n",
		"quoted": "\"12345\",\"1074638\",\"7\",\"1365029107\"\n",
	} {
		delimiter := ","
		if strings.Contains(row, "::") {
			delimiter = "::"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			source := sourceOf(b, &repeated{row: row, n: b.N}, delimiter, 1000)
			for {
				if _, err := source.next(); err != nil {
					break
				}
			}
		})
	}
}
