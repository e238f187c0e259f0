package rediscache

import (
	"os"
	"strings"
	"testing"
)

func simSeeds() uint64 {
	if os.Getenv("LIANA_LONG") != "" {
		return 10_000
	}
	return 150
}

// The protocol bears all faults at once.
func TestProtocolHolds(t *testing.T) {
	for seed := range simSeeds() {
		if trace, bad := simulate(t, seed, everything(), 60); bad != nil {
			t.Fatalf("seed %d: %v\n%s", seed, bad, strings.Join(trace, "\n"))
		}
	}
}

// Each rule is needed: without it the simulator finds a wrong answer.
func TestProtocolNeedsEachRule(t *testing.T) {
	// Where to begin, so that the rare ones are found at once; any start does.
	first := map[string]uint64{
		"F3 a fill is at or past h": 930, "L1 the floor is a whole key": 330, "R3 a flight's result is looked at": 330, "V4 what begins a list replaces": 390,
	}
	for name, breakRule := range map[string]func(*simFaults){
		"V1 a number a change":              func(f *simFaults) { f.storage.OneNumberAnEntry = true },
		"V2 the counter is inherited":       func(f *simFaults) { f.storage.CounterFromOne = true },
		"V3 a timeline a restore":           func(f *simFaults) { f.storage.TimelineKept = true },
		"V4 what begins a list replaces":    func(f *simFaults) { f.redis.createAdds = true },
		"R1 polls":                          func(f *simFaults) { f.noPolls = true },
		"R1 confirmed leaders":              func(f *simFaults) { f.unconfirmed = true },
		"R2 positions on hot copies":        func(f *simFaults) { f.naiveHot = true },
		"R3 a flight's result is looked at": func(f *simFaults) { f.naiveFlights = true },
		"F1 only the feeder writes rows":    func(f *simFaults) { f.rowWriters = true },
		"F2 only a fill creates":            func(f *simFaults) { f.redis.pushCreates = true },
		"F3 a fill is at or past h":         func(f *simFaults) { f.redis.fillAnyPosition = true },
		"F4 h moves by compare and set":     func(f *simFaults) { f.redis.pushAnywhere = true },
		"F4 the cursor is h":                func(f *simFaults) { f.slotCursor = true },
		"F3 a change newer than the entry":  func(f *simFaults) { f.redis.notOnlyNewer = true },
		"F5 a new gen for a new p":          func(f *simFaults) { f.oneGen = true },
		"L1 the floor is a whole key":       func(f *simFaults) { f.redis.floorIsTime = true },
		"L1 an add may be an insertion":     func(f *simFaults) { f.redis.addAppends = true },
	} {
		t.Run(name, func(t *testing.T) {
			f := everything()
			breakRule(&f)
			for i := range 2000 + simSeeds() {
				seed := first[name] + i
				if _, bad := simulate(t, seed, f, 60); bad != nil {
					t.Logf("seed %d: %v", seed, bad)
					return
				}
			}
			t.Error("nothing goes wrong without it")
		})
	}
}
