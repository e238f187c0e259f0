package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Machine is what a figure depends on besides the program.
type Machine struct {
	Cores      int     `json:"cores"`
	CPU        string  `json:"cpu"`
	MemoryMiB  uint64  `json:"memory_mib"`
	Kernel     string  `json:"kernel"`
	Go         string  `json:"go"`
	FileSystem string  `json:"file_system"`
	FsyncP50us float64 `json:"fsync_4k_p50_us"`
	FsyncP99us float64 `json:"fsync_4k_p99_us"`
}

// fsyncProbes at a few milliseconds each on a slow disk take a second.
const fsyncProbes = 200

// Inspect describes the machine and measures the disk under dir.
func Inspect(dir string) (Machine, error) {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: cpuModel(), FileSystem: fileSystem(dir)}
	m.MemoryMiB = values("/proc/meminfo", "MemTotal")[0] >> 10
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(release))
	}
	h := NewHistogram()
	f, err := os.CreateTemp(dir, "fsync-")
	if err != nil {
		return m, fmt.Errorf("measure fsync: %w", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	block := make([]byte, 4096)
	for range fsyncProbes {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return m, fmt.Errorf("measure fsync: %w", err)
		}
		if err := f.Sync(); err != nil {
			return m, fmt.Errorf("measure fsync: %w", err)
		}
		RecordLatency(h, time.Since(start))
	}
	m.FsyncP50us, m.FsyncP99us = Micros(h, 50), Micros(h, 99)
	return m, nil
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// fileSystem names the file system under dir. On tmpfs an fsync costs nothing,
// and durable writes of every target look far better than they are.
func fileSystem(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	names := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x794c7630: "overlay", 0x2fc12fc1: "zfs"}
	if name, ok := names[int64(st.Type)]; ok {
		return name
	}
	return fmt.Sprintf("%#x", st.Type)
}

// FreeBytes is the space left on the file system of dir.
func FreeBytes(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(filepath.Clean(dir), &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}
