package server

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"

	pb "github.com/lianadb/liana/proto/liana/v1"
)

// callMetrics count calls. The series of a method are made once, so that a call
// looks nothing up by text but its method.
type callMetrics struct {
	total    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	outcomes [outcomeCount]prometheus.Counter
	panics   prometheus.Counter
	// respSeconds are the batches of the Redis-protocol port.
	respSeconds prometheus.Histogram
	methods     map[string]*methodMetrics
}

type methodMetrics struct {
	byCode  [codes.Unauthenticated + 1]prometheus.Counter
	seconds prometheus.Observer
}

// outcomeCount is the number of values of pb.Outcome.
const outcomeCount = 6

// otherMethods gathers what is not one of the registered methods.
const otherMethods = "other"

func newCallMetrics(reg prometheus.Registerer) *callMetrics {
	m := &callMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "liana_grpc_calls_total", Help: "Calls answered, by method and status code.",
		}, []string{"method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "liana_grpc_call_seconds", Help: "Time from a request's arrival to its answer.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 18), // 50 µs to 6.6 s
		}, []string{"method"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "liana_grpc_panics_total", Help: "Calls that ended in a panic.",
		}),
		respSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "liana_resp_batch_seconds", Help: "Time from the arrival of commands on a connection to their replies.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 18),
		}),
		methods: map[string]*methodMetrics{},
	}
	outcomes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "liana_mutations_total", Help: "Mutations of edges, by outcome.",
	}, []string{"outcome"})
	for n, name := range pb.Outcome_name {
		if n != 0 {
			m.outcomes[n] = outcomes.WithLabelValues(strings.ToLower(name))
		}
	}
	reg.MustRegister(m.total, m.seconds, m.panics, m.respSeconds, outcomes)
	m.add(otherMethods)
	return m
}

// add makes the series of a method, named "/package.Service/Method".
func (m *callMetrics) add(fullMethod string) {
	name := strings.TrimPrefix(fullMethod, "/")
	mm := &methodMetrics{seconds: m.seconds.WithLabelValues(name)}
	for c := range mm.byCode {
		mm.byCode[c] = m.total.WithLabelValues(name, codes.Code(c).String())
	}
	m.methods[fullMethod] = mm
}

func (m *callMetrics) observe(fullMethod string, code codes.Code, took time.Duration) {
	mm, ok := m.methods[fullMethod]
	if !ok {
		mm = m.methods[otherMethods]
	}
	if int(code) < len(mm.byCode) {
		mm.byCode[code].Inc()
	}
	mm.seconds.Observe(took.Seconds())
}

// mutated counts outcomes, all at once: a batch has up to 10,000.
func (m *callMetrics) mutated(outcomes []pb.Outcome) {
	var n [outcomeCount]int
	for _, o := range outcomes {
		n[o]++
	}
	for o, k := range n {
		if k > 0 && m.outcomes[o] != nil {
			m.outcomes[o].Add(float64(k))
		}
	}
}

// nodeMetrics reads the figures of shards, engines and the disk when they are
// asked for.
type nodeMetrics struct {
	server *Server
}

func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// Describe sends nothing: which shards and engines there are is not known yet.
func (nodeMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (n nodeMetrics) Collect(ch chan<- prometheus.Metric) {
	s := n.server
	one := emitter{ch: ch}
	one.gauge("liana_ready", "1 when every shard serves.", flag(s.Readiness() == nil))
	one.gauge("liana_grpc_calls_in_flight", "Calls being handled.", float64(s.calls.inFlight.Load()))
	one.gauge("liana_grpc_request_bytes_in_flight", "Bytes of the requests being handled.", float64(s.calls.bytes.Load()))
	one.gauge("liana_grpc_streams_open", "Open streams.", float64(s.calls.streams.Load()))
	one.resp(s.resp.Figures())
	a := s.calls.attached.Load()
	if a == nil {
		return
	}
	one.gauge("liana_build_info", "Always 1.", 1, "version", a.Node.Version)
	if a.Disk != nil {
		free, level := a.Disk.State()
		one.gauge("liana_disk_free_bytes", "Free space under the data directory.", float64(free))
		one.gauge("liana_disk_writes_refused", "1 while writes are refused for lack of space, 2 deletes too.", float64(level))
	}
	for _, st := range a.Backend.Status() {
		one.shard(st)
	}
	if a.Cache != nil {
		for _, f := range a.Cache.Figures() {
			one.cache(f)
		}
	}
	for _, st := range a.Stores {
		one.store(st.Name, st.Stats())
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
