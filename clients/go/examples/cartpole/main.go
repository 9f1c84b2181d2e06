// CartPole with the equations of Gymnasium's CartPole-v1.
package main

import (
	"math"
	"math/rand"

	"seedrl"
)

const (
	gravity, masspole, length, forceMag, tau = 9.8, 0.1, 0.5, 10.0, 0.02
	totalMass, polemassLength                = masspole + 1.0, masspole * length
	maxX, maxTheta, maxSteps                 = 2.4, 12 * 2 * math.Pi / 360, 500
)

type cartPole struct {
	x, xDot, theta, thetaDot float64
	steps                    int
}

func (c *cartPole) observation() []float32 {
	return []float32{float32(c.x), float32(c.xDot), float32(c.theta), float32(c.thetaDot)}
}

func (c *cartPole) Reset() (any, error) {
	start := func() float64 { return rand.Float64()*0.1 - 0.05 }
	*c = cartPole{start(), start(), start(), start(), 0}
	return c.observation(), nil
}

func (c *cartPole) Step(action any) (seedrl.Step, error) {
	force := -forceMag
	if action.(int) == 1 {
		force = forceMag
	}
	sin, cos := math.Sincos(c.theta)
	temp := (force + polemassLength*(c.thetaDot*c.thetaDot)*sin) / totalMass
	thetaAcc := (gravity*sin - cos*temp) / (length * (4.0/3.0 - masspole*(cos*cos)/totalMass))
	xAcc := temp - polemassLength*thetaAcc*cos/totalMass
	c.x += tau * c.xDot
	c.xDot += tau * xAcc
	c.theta += tau * c.thetaDot
	c.thetaDot += tau * thetaAcc
	c.steps++
	return seedrl.Step{
		Observation: c.observation(),
		Reward:      1,
		Terminated:  math.Abs(c.x) > maxX || math.Abs(c.theta) > maxTheta,
		Truncated:   c.steps >= maxSteps,
	}, nil
}

func main() {
	seedrl.Main(seedrl.Spec{
		Observation: seedrl.Box{DType: seedrl.Float32, Shape: []int{4}},
		Action:      seedrl.Discrete{N: 2},
		New:         func(int) (seedrl.Env, error) { return &cartPole{}, nil },
	})
}
