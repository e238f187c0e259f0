package workload

import (
	"math"
	"math/rand/v2"
	"testing"
)

func mustIDs(t *testing.T, s string) IDs {
	t.Helper()
	ids, err := ParseIDs(s)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestZipfFrequenciesFollowTheLaw(t *testing.T) {
	for _, shape := range []float64{0.741, 0.9, 0.99, 1, 1.2} {
		const n, draws = 1000, 400_000
		rng := rand.New(rand.NewPCG(1, 2))
		z := NewZipf(n, shape)
		got := make([]float64, n)
		for range draws {
			got[z.Draw(rng)]++
		}
		h := 0.0
		for r := 1; r <= n; r++ {
			h += math.Pow(float64(r), -shape)
		}
		chi := 0.0
		for r := range n {
			want := draws * math.Pow(float64(r+1), -shape) / h
			chi += (got[r] - want) * (got[r] - want) / want
		}
		// 999 degrees of freedom: mean 999, deviation 45.
		if chi > 999+5*45 {
			t.Errorf("shape %v: chi-square %.0f over %d ranks", shape, chi, n)
		}
	}
}

func TestZipfOfOneRank(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	if got := NewZipf(1, 0.99).Draw(rng); got != 0 {
		t.Fatalf("drew %d", got)
	}
}

func TestLinearCDFMeetsItsPointsAndTheMean(t *testing.T) {
	c := LinearCDF(linkBenchOutDegree())
	if got := c.Quantile(0.9991872365); math.Abs(got-400) > 1e-6 {
		t.Errorf("quantile of a point = %v, want 400", got)
	}
	if got := c.Quantile((0.9991872365 + 0.9992835435) / 2); math.Abs(got-456) > 1e-3 {
		t.Errorf("quantile between two points = %v, want 456", got)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	const draws = 2_000_000
	zero, one, big := 0, 0, 0
	for range draws {
		switch d := c.Draw(rng); {
		case d == 0:
			zero++
		case d == 1:
			one++
		case d > 1000:
			big++
		}
	}
	near(t, "share of empty lists", float64(zero)/draws, 0.4533, 0.002)
	near(t, "share of lists of one", float64(one)/draws, 0.3213, 0.002)
	near(t, "share of lists over 1000", float64(big)/draws, 0.000493, 0.0001)
}

func TestGeometricCDFOfFeedBatches(t *testing.T) {
	c := GeometricCDF(feedBatch())
	for _, p := range []struct{ q, want float64 }{{0, 1}, {0.5, 4}, {0.9, 49}, {0.99, 241}, {1, 500}, {0.25, 2}} {
		near(t, "quantile", c.Quantile(p.q), p.want, 1e-9)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		if d := c.Draw(rng); d < 1 || d > 500 {
			t.Fatalf("drew a batch of %d", d)
		}
	}
}

func TestIDsAreOneToOne(t *testing.T) {
	for _, kind := range []string{"dense", "scattered"} {
		for _, n := range []int{1, 2, 3, 10, 97, 1000, 1 << 16} {
			space := mustIDs(t, kind).Space(n)
			seen := map[uint64]bool{}
			for r := range n + 10 {
				id := space.ID(r)
				if id == 0 || id >= 1<<62 || seen[id] {
					t.Fatalf("%s, n %d: rank %d has id %d (seen before: %v)", kind, n, r, id, seen[id])
				}
				if kind == "dense" && id != uint64(r)+1 && r >= n || kind == "dense" && id > uint64(n)+10 {
					t.Fatalf("dense, n %d: rank %d has id %d", n, r, id)
				}
				seen[id] = true
			}
		}
	}
}

func TestParseIDsRefusesOtherWords(t *testing.T) {
	if _, err := ParseIDs("sparse"); err == nil {
		t.Fatal("accepted")
	}
}

func TestStreamsRepeatAndDiffer(t *testing.T) {
	for _, name := range Names() {
		m, err := NewMix(name, 7, 500, 2000, mustIDs(t, "scattered"))
		if err != nil {
			t.Fatal(err)
		}
		base := digest(m.Stream(3, 8, 0))
		if digest(m.Stream(3, 8, 0)) != base {
			t.Errorf("%s: the same caller got another stream", name)
		}
		again, _ := NewMix(name, 7, 500, 2000, mustIDs(t, "scattered"))
		if digest(again.Stream(3, 8, 0)) != base {
			t.Errorf("%s: the same seed made another mix", name)
		}
		other, _ := NewMix(name, 8, 500, 2000, mustIDs(t, "scattered"))
		if name != "hot" && digest(other.Stream(3, 8, 0)) == base {
			t.Errorf("%s: another seed made the same stream", name)
		}
		if digest(m.Stream(4, 8, 0)) == base || digest(m.Stream(3, 8, 1)) == base {
			t.Errorf("%s: another caller or salt got the same stream", name)
		}
	}
}

// digest folds 2,000 operations into a number.
func digest(s *Stream) uint64 {
	h := uint64(14695981039346656037)
	mixIn := func(x uint64) { h = (h ^ x) * 1099511628211 }
	var op Op
	for range 2000 {
		s.Next(&op)
		mixIn(uint64(op.Kind))
		mixIn(op.Edge.Src)
		mixIn(op.Edge.Dst)
		mixIn(op.Vertex)
		mixIn(uint64(op.Skip))
		for _, id := range op.IDs {
			mixIn(id)
		}
	}
	return h
}

func TestSharesOfMixes(t *testing.T) {
	for name, shares := range map[string][]share{"feed": feedShares(), "linkbench": linkBenchShares()} {
		m, err := NewMix(name, 1, 300, 2000, mustIDs(t, "dense"))
		if err != nil {
			t.Fatal(err)
		}
		const draws = 100_000
		var got [Kinds]float64
		var op Op
		s := m.Stream(0, 1, 0)
		for range draws {
			s.Next(&op)
			got[op.Kind] += 100.0 / draws
		}
		// LinkBench's share of older pages is a part of its listings.
		if name == "linkbench" {
			near(t, "linkbench: older pages", got[ListOlder]/(got[ListOlder]+got[ListNewest]), linkTailShare, 0.002)
			got[ListNewest] += got[ListOlder]
		}
		for _, sh := range shares {
			near(t, name+" "+sh.kind.String(), got[sh.kind], sh.percent, 0.6)
		}
	}
}

func TestHalfOfHasExists(t *testing.T) {
	m, err := NewMix("has", 1, 200, 100_000, mustIDs(t, "scattered"))
	if err != nil {
		t.Fatal(err)
	}
	stored := map[Edge]bool{}
	if err := m.Graph.Load(m.IDs, func(e Edge) error { stored[Edge{Src: e.Src, Dst: e.Dst}] = true; return nil }); err != nil {
		t.Fatal(err)
	}
	if len(stored) != 200*hasDegree || m.Graph.Edges() != len(stored) {
		t.Fatalf("%d distinct edges loaded, graph says %d", len(stored), m.Graph.Edges())
	}
	asked, there := 0, 0
	var op Op
	s := m.Stream(0, 1, 0)
	for range 500 {
		s.Next(&op)
		if op.Kind != Has || len(op.IDs) != hasBatch || op.Units() != hasBatch {
			t.Fatalf("operation %v of %d", op.Kind, len(op.IDs))
		}
		for _, id := range op.IDs {
			asked++
			if stored[Edge{Src: op.Vertex, Dst: id}] {
				there++
			}
		}
	}
	near(t, "share that exists", float64(there)/float64(asked), 0.5, 0.01)
}

func TestWritesMeetStoredEdgesAsOftenAsTheyShould(t *testing.T) {
	m, err := NewMix("linkbench", 1, 3000, 100_000, mustIDs(t, "dense"))
	if err != nil {
		t.Fatal(err)
	}
	stored := map[Edge]bool{}
	_ = m.Graph.Load(m.IDs, func(e Edge) error { stored[Edge{Src: e.Src, Dst: e.Dst}] = true; return nil })
	var all, there [Kinds]float64
	var op Op
	s := m.Stream(0, 1, 0)
	for range 100_000 {
		s.Next(&op)
		all[op.Kind]++
		if stored[op.Edge] {
			there[op.Kind]++
		}
	}
	for kind, want := range map[Kind]float64{Add: addExists, Delete: deleteExists, Update: updateExists} {
		// A new pair may exist by chance, seldom.
		near(t, kind.String(), there[kind]/all[kind], want, 0.03)
	}
}

func TestHotIsOneNoteAndNeverTheSameUser(t *testing.T) {
	m, err := NewMix("hot", 1, 100, 100, mustIDs(t, "dense"))
	if err != nil {
		t.Fatal(err)
	}
	users, notes := map[uint64]bool{}, map[uint64]bool{}
	for caller := range 4 {
		for salt := range uint64(2) {
			s := m.Stream(caller, 4, salt)
			var op Op
			for range 500 {
				s.Next(&op)
				if users[op.Edge.Src] {
					t.Fatalf("user %d likes twice", op.Edge.Src)
				}
				users[op.Edge.Src], notes[op.Edge.Dst] = true, true
			}
		}
	}
	if len(notes) != 1 {
		t.Fatalf("%d notes", len(notes))
	}
}

func TestNewMixRefusesBadSizes(t *testing.T) {
	for _, c := range []struct {
		name         string
		users, notes int
	}{{"write", 0, 10}, {"write", 10, 1}, {"wrong", 10, 10}} {
		if _, err := NewMix(c.name, 1, c.users, c.notes, IDs{}); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
}

func TestClockRisesThroughTheYear(t *testing.T) {
	const n = 10_000
	c := NewClock(n)
	first, last := int64(0), int64(0)
	odd := 0
	for i := range n {
		now := c.Next()
		if now <= last {
			t.Fatalf("time %d after %d", now, last)
		}
		if i == 0 {
			first = now
		}
		odd += int(now & 1)
		last = now
	}
	if last > yearEnd || last-first < 360*86400*1_000_000 {
		t.Fatalf("from %d to %d", first, last)
	}
	near(t, "odd times", float64(odd)/n, 0.5, 0.05)
}

func TestLikesAndStars(t *testing.T) {
	l := NewLikes(5, 30_000, 0.9, mustIDs(t, "scattered"))
	seen := map[Edge]bool{}
	for range 30_000 {
		e := l.Next()
		seen[Edge{Src: e.Src, Dst: e.Dst}] = true
	}
	if len(seen) < 28_500 {
		t.Errorf("only %d of 30,000 likes are distinct", len(seen))
	}
	for _, kind := range []string{"dense", "scattered"} {
		a, b := NewStar(true, 0, mustIDs(t, kind)), NewStar(true, 1, mustIDs(t, kind))
		peers := map[uint64]bool{a.Center: true, b.Center: true}
		for i := range 1000 {
			for _, s := range []Star{a, b} {
				e := s.Edge(i)
				if e.Dst != s.Center || peers[e.Src] || e.Time != s.Time(i) {
					t.Fatalf("%s: edge %d is %+v", kind, i, e)
				}
				peers[e.Src] = true
			}
		}
		out := NewStar(false, 0, mustIDs(t, kind))
		if out.Edge(5).Src != out.Center || out.Edge(5).Dst != a.Edge(5).Src {
			t.Errorf("%s: the OUT star is not the IN star turned", kind)
		}
	}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within {
		t.Errorf("%s = %v, want %v within %v", what, got, want, within)
	}
}
