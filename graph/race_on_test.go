//go:build race

package graph

// raceEnabled: the race detector is on, and with it Pebble's own checks of its
// invariants, which make the engine some forty times slower.
const raceEnabled = true
