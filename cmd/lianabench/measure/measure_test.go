package measure

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeWorker answers after what delay says.
type fakeWorker struct {
	prepared, ran int
	delay         func(n int) time.Duration
	err           func(n int) error
}

func (w *fakeWorker) Prepare() { w.prepared++ }

func (w *fakeWorker) Run(ctx context.Context) (Outcome, error) {
	w.ran++
	if w.delay != nil {
		time.Sleep(w.delay(w.ran))
	}
	if w.err != nil {
		if err := w.err(w.ran); err != nil {
			return Outcome{}, err
		}
	}
	return Outcome{Kind: w.ran % 2, Units: 3}, ctx.Err()
}

func constant(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func TestClosedLoopMeasuresAfterWarmup(t *testing.T) {
	w := &fakeWorker{delay: constant(2 * time.Millisecond)}
	var live atomic.Int64
	r, err := Run(t.Context(), Load{Warmup: 100 * time.Millisecond, Duration: 200 * time.Millisecond, Live: &live}, []Worker{w})
	if err != nil {
		t.Fatal(err)
	}
	if r.Calls < 5 || r.Calls > 100 || int64(w.ran) < r.Calls+3 {
		t.Errorf("%d calls measured of %d", r.Calls, w.ran)
	}
	if r.Units != 3*r.Calls || live.Load() != r.Units || len(r.Kinds) != 2 || r.All().TotalCount() != r.Calls {
		t.Errorf("units %d, live %d, kinds %d, latencies %d of %d calls", r.Units, live.Load(), len(r.Kinds), r.All().TotalCount(), r.Calls)
	}
	if p50 := Micros(r.All(), 50); p50 < 2000 || p50 > 50_000 {
		t.Errorf("p50 %v µs of a call of 2 ms", p50)
	}
	if want := float64(r.Units) / 0.2; math.Abs(r.Rate()-want) > 1 {
		t.Errorf("rate %v, want %v", r.Rate(), want)
	}
}

func TestCountEndsTheLoad(t *testing.T) {
	workers := []Worker{&fakeWorker{delay: constant(time.Millisecond)}, &fakeWorker{delay: constant(time.Millisecond)}}
	r, err := Run(t.Context(), Load{Duration: time.Minute, Count: 40}, workers)
	if err != nil || r.Calls != 40 || r.Elapsed > 5*time.Second || r.Elapsed < 20*time.Millisecond {
		t.Errorf("%d calls in %v (error %v)", r.Calls, r.Elapsed, err)
	}
}

// A target that stands still for 300 ms delays all operations that were due
// meanwhile. A closed loop would show one slow call out of many.
func TestOpenLoopCountsTheWaitOfAStall(t *testing.T) {
	var stall sync.RWMutex
	gate := func(int) time.Duration {
		stall.RLock()
		defer stall.RUnlock()
		return 0
	}
	workers := make([]Worker, 4)
	for i := range workers {
		workers[i] = &fakeWorker{delay: gate}
	}
	go func() {
		time.Sleep(100 * time.Millisecond)
		stall.Lock()
		time.Sleep(300 * time.Millisecond)
		stall.Unlock()
	}()
	r, err := Run(t.Context(), Load{Duration: time.Second, Rate: 1000}, workers)
	if err != nil {
		t.Fatal(err)
	}
	if r.Calls < 990 || r.Calls > 1001 || r.Missed != 0 {
		t.Errorf("%d calls, %d missed, of 1000 due", r.Calls, r.Missed)
	}
	// 300 of 1000 operations fell due in the stall: the slowest fifth waited over 100 ms.
	if p80 := Micros(r.All(), 80); p80 < 80_000 {
		t.Errorf("p80 = %.0f µs: the wait of operations that were due in the stall is missing", p80)
	}
	if p50 := Micros(r.All(), 50); p50 > 60_000 {
		t.Errorf("p50 = %.0f µs: operations after the stall wait too", p50)
	}
}

func TestOpenLoopReportsWhatItNeverBegan(t *testing.T) {
	w := &fakeWorker{delay: constant(20 * time.Millisecond)}
	r, err := Run(t.Context(), Load{Duration: 200 * time.Millisecond, Rate: 1000}, []Worker{w})
	if err != nil {
		t.Fatal(err)
	}
	if r.Missed < 150 || r.Calls+r.Missed < 190 || r.Calls+r.Missed > 201 {
		t.Errorf("%d calls and %d missed of 200 due", r.Calls, r.Missed)
	}
	if top := Micros(r.All(), 100); top < 150_000 {
		t.Errorf("slowest operation waited %.0f µs", top)
	}
}

func TestPoissonArrivalsKeepTheRate(t *testing.T) {
	r, err := Run(t.Context(), Load{Duration: 500 * time.Millisecond, Rate: 4000, Poisson: true, Seed: 9}, []Worker{&fakeWorker{}, &fakeWorker{}})
	if err != nil || r.Calls < 1800 || r.Calls > 2200 {
		t.Errorf("%d calls of about 2000 (error %v)", r.Calls, err)
	}
}

func TestErrorsAreCountedAndEndTheLoad(t *testing.T) {
	boom := errors.New("boom")
	some := &fakeWorker{delay: constant(time.Millisecond), err: func(n int) error {
		if n == 5 {
			return boom
		}
		return nil
	}}
	r, err := Run(t.Context(), Load{Duration: 50 * time.Millisecond}, []Worker{some})
	if err != nil || r.Errors != 1 || !errors.Is(r.FirstError, boom) || r.Calls == 0 {
		t.Errorf("one failure: %+v, error %v", r, err)
	}
	all := &fakeWorker{err: func(int) error { return boom }}
	start := time.Now()
	_, err = Run(t.Context(), Load{Duration: time.Minute}, []Worker{all})
	if !errors.Is(err, ErrTooManyErrors) || !errors.Is(err, boom) || time.Since(start) > 10*time.Second {
		t.Errorf("all failures: error %v after %v", err, time.Since(start))
	}
}

func TestCancelledLoadSaysSo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := Run(ctx, Load{Duration: time.Minute}, []Worker{&fakeWorker{delay: constant(time.Millisecond)}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestSpreadAndRatio(t *testing.T) {
	if s := SpreadOf([]float64{3, 1, 2}); s != (Spread{2, 1, 3}) {
		t.Errorf("odd: %+v", s)
	}
	if s := SpreadOf([]float64{4, 1, 2, 3}); s != (Spread{2.5, 1, 4}) {
		t.Errorf("even: %+v", s)
	}
	if s := SpreadOf(nil); s != (Spread{}) {
		t.Errorf("none: %+v", s)
	}
	// The second round was slow for both: the ratio does not move.
	if s := RatioOf([]float64{200, 20, 300}, []float64{100, 10, 100}); s != (Spread{2, 2, 3}) {
		t.Errorf("ratio: %+v", s)
	}
	if s := RatioOf([]float64{1}, []float64{0}); s != (Spread{}) {
		t.Errorf("ratio to nothing: %+v", s)
	}
}

func TestQuantiles(t *testing.T) {
	h := NewHistogram()
	if Quantiles(h) != nil {
		t.Error("quantiles of nothing")
	}
	for i := 1; i <= 1000; i++ {
		RecordLatency(h, time.Duration(i)*time.Millisecond)
	}
	for _, q := range Quantiles(h) {
		if want := max(q.Percent*10_000, 1000); math.Abs(q.Micros-want) > want/100+1500 {
			t.Errorf("p%v = %v µs, want about %v", q.Percent, q.Micros, want)
		}
	}
	RecordLatency(h, time.Hour)
	if top, want := Micros(h, 100), float64(latencyMax)/1000; math.Abs(top-want) > want/100 {
		t.Errorf("a latency beyond the range counts as %v µs, want %v", top, want)
	}
}

func TestUsageOfAFamily(t *testing.T) {
	// The shell's child burns processor time; head bounds it.
	cmd := exec.Command("/bin/sh", "-c", "head -c 1000000000 /dev/zero | cksum >/dev/null; sleep 60 & wait")
	self := SelfCPU()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watch := Watch(cmd.Process.Pid)
	defer func() {
		for _, pid := range family([]int{cmd.Process.Pid})[1:] {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if peak := watch.Stop(); peak < 100<<10 || peak > 1<<30 {
			t.Errorf("peak resident %d bytes", peak)
		}
		if u := UsageOf(cmd.Process.Pid); u != (Usage{}) {
			t.Errorf("usage of an ended process: %+v", u)
		}
	}()
	deadline := time.Now().Add(20 * time.Second)
	for UsageOf(cmd.Process.Pid).CPU < 50*time.Millisecond {
		if time.Now().After(deadline) {
			t.Fatalf("usage %+v", UsageOf(cmd.Process.Pid))
		}
		time.Sleep(10 * time.Millisecond)
	}
	Settle([]int{cmd.Process.Pid}, 5*time.Second)
	child, own := UsageOf(cmd.Process.Pid).CPU, SelfCPU()-self
	if all := UsageOf(os.Getpid()).CPU; own <= 0 || all < child+own/2 {
		t.Errorf("own time %v, the child's %v, together %v", own, child, all)
	}
	if PeakResident(os.Getpid()) < 1<<20 {
		t.Error("this test takes less than 1 MiB")
	}
}

func TestInspect(t *testing.T) {
	m, err := Inspect(t.TempDir())
	if err != nil || m.Cores < 1 || m.MemoryMiB == 0 || m.Kernel == "" || m.FsyncP50us <= 0 || m.FileSystem == "" {
		t.Errorf("%+v (error %v)", m, err)
	}
	if free, err := FreeBytes(t.TempDir()); err != nil || free == 0 {
		t.Errorf("free %d (error %v)", free, err)
	}
}
