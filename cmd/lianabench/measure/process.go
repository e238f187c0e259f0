package measure

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Usage is what a process and those it started use, as /proc tells.
type Usage struct {
	// CPU is processor time, user and system together.
	CPU time.Duration
	// Resident memory in bytes. Pages that several processes share count once.
	Resident uint64
	// DiskRead and DiskWritten are bytes that went from and to storage.
	DiskRead, DiskWritten uint64
}

// clockTick is the unit of processor time in /proc: USER_HZ, 100 a second on
// every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// UsageOf sums over processes and their descendants. A process that is gone counts as
// nothing, so the usage of an ended process is the zero Usage.
func UsageOf(pids ...int) Usage {
	var u Usage
	var file, shared uint64
	for _, p := range family(pids) {
		u.CPU += cpuTime(p)
		m := memory(p)
		u.Resident += m.anon
		// Processes of one program map the same files and segments.
		file, shared = max(file, m.file), max(shared, m.shared)
		read, written := diskBytes(p)
		u.DiskRead += read
		u.DiskWritten += written
	}
	u.Resident += file + shared
	return u
}

// SelfCPU is the processor time of this process alone, without the servers that
// it started.
func SelfCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// family returns the processes and their descendants.
func family(pids []int) []int {
	all := slices.Clone(pids)
	for i := 0; i < len(all); i++ {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		for _, path := range threads {
			text, _ := os.ReadFile(path)
			for _, word := range strings.Fields(string(text)) {
				if child, err := strconv.Atoi(word); err == nil {
					all = append(all, child)
				}
			}
		}
	}
	return all
}

// cpuTime is the greater of two accounts: that of the scheduler, to the
// nanosecond, which forgets threads that ended, and that of the process, in
// ticks, which forgets none and adds children that were waited for.
func cpuTime(pid int) time.Duration {
	total := uint64(0)
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, path := range threads {
		text, _ := os.ReadFile(path)
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			ns, _ := strconv.ParseUint(fields[0], 10, 64)
			total += ns
		}
	}
	return max(time.Duration(total), tickTime(pid))
}

func tickTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is a name in brackets that may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const utime = 11 // field 14, counted from field 3
	total := 0
	for i := utime; i < utime+4 && i < len(fields); i++ {
		n, _ := strconv.Atoi(fields[i])
		total += n
	}
	return time.Duration(total) * clockTick
}

type memoryParts struct{ anon, file, shared uint64 }

func memory(pid int) memoryParts {
	v := values(fmt.Sprintf("/proc/%d/status", pid), "RssAnon", "RssFile", "RssShmem")
	return memoryParts{anon: v[0] << 10, file: v[1] << 10, shared: v[2] << 10}
}

// PeakResident is the most memory that pid itself ever had, as the kernel keeps it.
func PeakResident(pid int) uint64 {
	return values(fmt.Sprintf("/proc/%d/status", pid), "VmHWM")[0] << 10
}

func diskBytes(pid int) (read, written uint64) {
	v := values(fmt.Sprintf("/proc/%d/io", pid), "read_bytes", "write_bytes")
	return v[0], v[1]
}

// values reads numbers from a file of lines "name: number …"; absent ones are 0.
func values(path string, names ...string) []uint64 {
	out := make([]uint64, len(names))
	f, err := os.Open(path)
	if err != nil {
		return out
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		for i, want := range names {
			if fields := strings.Fields(rest); name == want && len(fields) > 0 {
				out[i], _ = strconv.ParseUint(fields[0], 10, 64)
			}
		}
	}
	return out
}

// Sampler watches the memory of processes from Watch to Stop.
type Sampler struct {
	quit, done chan struct{}
	peak       atomic.Uint64
}

// sampleEvery is far shorter than memory takes to grow by a share that matters, and so
// long that reading /proc of three nodes takes no processor time that counts: at five times
// a second that was 4 % of what two cores did.
const sampleEvery = time.Second

// Watch starts a sampler. It needs a Stop.
func Watch(pids ...int) *Sampler {
	s := &Sampler{quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			s.peak.Store(max(s.peak.Load(), UsageOf(pids...).Resident))
			select {
			case <-tick.C:
			case <-s.quit:
				return
			}
		}
	}()
	return s
}

// Stop ends the sampler and returns the most resident memory seen, in bytes.
func (s *Sampler) Stop() uint64 {
	close(s.quit)
	<-s.done
	return s.peak.Load()
}

// Peak is the most resident memory seen so far, in bytes.
func (s *Sampler) Peak() uint64 { return s.peak.Load() }

// Settle waits until the processes use less than a twentieth of a processor, so
// that work it does behind its load is not charged to the next target; at most
// for the given time.
func Settle(pids []int, atMost time.Duration) {
	const look = 100 * time.Millisecond
	last := UsageOf(pids...).CPU
	for end := time.Now().Add(atMost); time.Now().Before(end); {
		time.Sleep(look)
		now := UsageOf(pids...).CPU
		if now-last <= look/20 {
			return
		}
		last = now
	}
}
