package workload

import (
	"math"
	"math/rand/v2"
	"sort"
)

// Point is one point of a cumulative distribution: P(X <= Value) = P.
type Point struct {
	Value float64
	P     float64
}

// CDF draws whole numbers from a cumulative distribution given by points, in
// rising order, the last with P = 1. Below the first point lies all of its mass.
type CDF struct {
	points    []Point
	geometric bool
}

// LinearCDF interpolates linearly between points.
func LinearCDF(points []Point) *CDF { return &CDF{points: points} }

// GeometricCDF interpolates linearly in the logarithm of the value, which suits
// heavy tails known by a few percentiles only. All values must be > 0.
func GeometricCDF(points []Point) *CDF { return &CDF{points: points, geometric: true} }

// Draw returns a value, rounded up as a count that is "at most" a point must be.
func (c *CDF) Draw(rng *rand.Rand) int { return int(math.Ceil(c.Quantile(rng.Float64()) - 1e-9)) }

// Quantile returns the value x with P(X <= x) = p, for p in [0, 1].
func (c *CDF) Quantile(p float64) float64 {
	i := sort.Search(len(c.points), func(i int) bool { return c.points[i].P >= p })
	switch {
	case i == 0:
		return c.points[0].Value
	case i == len(c.points):
		return c.points[i-1].Value
	}
	a, b := c.points[i-1], c.points[i]
	part := (p - a.P) / (b.P - a.P)
	if c.geometric {
		return a.Value * math.Pow(b.Value/a.Value, part)
	}
	return a.Value + part*(b.Value-a.Value)
}
