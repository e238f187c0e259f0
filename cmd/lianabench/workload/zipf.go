package workload

import (
	"math"
	"math/rand/v2"
)

// Zipf draws ranks 0 … n-1 with P(rank r) proportional to (r+1)^-shape. Any
// shape > 0 works, below 1 too, which the generator of the standard library
// refuses. It holds no state of its own and needs no table: rejection-inversion
// after Hörmann and Derflinger, about 1.1 draws a sample.
type Zipf struct {
	n          float64
	shape      float64
	integralX1 float64
	integralN  float64
	accept     float64
}

// NewZipf returns the distribution over n >= 1 ranks.
func NewZipf(n int, shape float64) *Zipf {
	z := &Zipf{n: float64(n), shape: shape}
	z.integralX1 = z.integral(1.5) - 1
	z.integralN = z.integral(z.n + 0.5)
	z.accept = 2 - z.inverse(z.integral(2.5)-z.density(2))
	return z
}

// Draw returns a rank in [0, n).
func (z *Zipf) Draw(rng *rand.Rand) int {
	for {
		u := z.integralN + rng.Float64()*(z.integralX1-z.integralN)
		x := z.inverse(u)
		k := math.Min(math.Max(math.Floor(x+0.5), 1), z.n)
		if k-x <= z.accept || u >= z.integral(k+0.5)-z.density(k) {
			return int(k) - 1
		}
	}
}

// density is x^-shape.
func (z *Zipf) density(x float64) float64 {
	return math.Exp(-z.shape * math.Log(x))
}

// integral is the integral of density from 1 to x, in a form that stays exact
// where shape is close to 1.
func (z *Zipf) integral(x float64) float64 {
	logX := math.Log(x)
	t := (1 - z.shape) * logX
	if math.Abs(t) < 1e-8 {
		return logX * (1 + t/2)
	}
	return logX * math.Expm1(t) / t
}

// inverse is the inverse function of integral.
func (z *Zipf) inverse(y float64) float64 {
	t := math.Max(y*(1-z.shape), -1)
	if math.Abs(t) < 1e-8 {
		return math.Exp(y * (1 - t/2))
	}
	return math.Exp(y * math.Log1p(t) / t)
}
