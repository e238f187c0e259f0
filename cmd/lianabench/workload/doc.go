// Package workload makes the operation streams of the benchmark: who likes
// what, which calls come in which shares, and how ids look. Everything is a
// function of a seed, so each system under test is given the same stream.
//
// The shapes are facts from published workloads; facts.go names the source of
// each number.
package workload
