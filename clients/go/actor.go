package seedrl

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math"
	"math/big"
	"math/rand"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An Env is one environment. Values are of the types that its spaces name. If it is an io.Closer,
// it is closed at the end.
type Env interface {
	Reset() (observation any, err error)
	// Step acts. An episode that has ended is reset by the caller.
	Step(action any) (Step, error)
}

// Step is the result of an action.
type Step struct {
	Observation any
	Reward      float32
	RawReward   *float32 // before shaping; nil: Reward
	Terminated  bool     // the episode has ended
	Truncated   bool     // a time limit has ended it
	PartEnded   bool     // a part of the game has ended, such as one of several lives
	Success     *bool    // at the end of an episode: whether its goal was reached; nil: has none
}

// Spec says which environments an actor has.
type Spec struct {
	Observation, Action Space
	// New is called for each environment, with its number; without --task, with its place in the batch.
	New func(number int) (Env, error)
}

// An ExitError is the reason for an exit code other than 0.
type ExitError struct {
	Code    int
	Message string
}

func (e *ExitError) Error() string { return e.Message }

func exit(code int, format string, args ...any) error {
	return &ExitError{code, fmt.Sprintf(format, args...)}
}

// A slot is an environment and what the next call says of it.
type slot struct {
	env                  Env
	spec                 *Spec
	observation          []any
	reward, raw, success float32
	done, abandoned      bool
	steps                int32
	fresh                bool // has not stepped since the last reset
	truncated            bool // the next action is ignored
}

var nan = float32(math.NaN())

func (s *slot) reset() error {
	observation, err := s.env.Reset()
	if err != nil {
		return err
	}
	s.steps, s.fresh, s.truncated = 0, true, false
	s.observation, err = flatten(s.spec.Observation, observation, nil)
	return err
}

// beginLife makes the next call report a first observation.
func (s *slot) beginLife() error {
	s.reward, s.raw, s.success, s.done, s.abandoned = 0, 0, nan, false, false
	if s.fresh {
		return nil
	}
	return s.reset()
}

func (s *slot) step(action any) error {
	if s.truncated {
		// The success of the episode is read now.
		s.reward, s.raw, s.done, s.abandoned = 0, 0, true, true
		return s.reset()
	}
	step, err := s.env.Step(action)
	if err != nil {
		return err
	}
	s.fresh = false
	s.steps++
	s.reward, s.raw, s.success = step.Reward, step.Reward, nan
	if step.RawReward != nil {
		s.raw = *step.RawReward
	}
	if step.Success != nil && (step.Terminated || step.Truncated) {
		s.success = 0
		if *step.Success {
			s.success = 1
		}
	}
	s.done, s.abandoned = step.Terminated || step.PartEnded, false
	s.truncated = step.Truncated && !step.Terminated
	if step.Terminated {
		return s.reset()
	}
	s.observation, err = flatten(s.spec.Observation, step.Observation, nil)
	return err
}

// actor is the state of Run.
type actor struct {
	options  Options
	spec     Spec
	slots    []slot
	ids      []int32   // of the environments
	claimed  bool      // the learner has handed them out
	since    time.Time // start, or loss of the learner; later by the time of resets
	answered bool      // the learner has answered since the start
	attempt  int       // since the last answer
}

// Run steps environments as the learner says until training is done, or the context is. Errors are
// of type *ExitError.
func Run(ctx context.Context, options Options, spec Spec) (err error) {
	a := &actor{options: options, spec: spec, slots: make([]slot, options.EnvBatchSize)}
	defer a.close()
	for i := range a.slots {
		a.ids = append(a.ids, int32(i))
		if options.Task > 0 {
			a.ids[i] += int32(options.Task * options.EnvBatchSize)
		}
	}
	if err := a.environments(func(i int) (err error) {
		a.slots[i].spec = &a.spec
		a.slots[i].env, err = spec.New(int(a.ids[i]))
		return err
	}); err != nil {
		return err
	}
	a.since = time.Now()
	for {
		err := a.live(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if done, err := a.verdict(err); done {
			return err
		}
		if err := a.pause(ctx, err); err != nil {
			return err
		}
	}
}

func (a *actor) close() {
	for _, s := range a.slots {
		if closer, ok := s.env.(interface{ Close() error }); ok {
			closer.Close()
		}
	}
}

// environments does something for each slot, and turns errors and panics into exit code 1.
func (a *actor) environments(do func(i int) error) (err error) {
	i := 0
	defer func() {
		if reason := recover(); reason != nil {
			err = exit(1, "environment %d has failed: %v", a.ids[i], reason)
		}
	}()
	for ; i < len(a.slots); i++ {
		if err := do(i); err != nil {
			return exit(1, "environment %d has failed: %v", a.ids[i], err)
		}
	}
	return nil
}

// live connects and steps the environments for one life. It returns why that has ended.
func (a *actor) live(ctx context.Context) error {
	c, err := connect(ctx, a.options)
	if err != nil {
		return err
	}
	defer c.close()
	function, order, err := fit(c.description, a.spec)
	if err != nil {
		return err
	}
	if a.options.Task < 0 && !a.claimed {
		if err := a.claim(c); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := a.environments(func(i int) error { return a.slots[i].beginLife() }); err != nil {
		return err
	}
	a.since = a.since.Add(time.Since(start))
	life, err := crand.Int(crand.Reader, big.NewInt(math.MaxInt64))
	if err != nil {
		return err
	}
	for alive := false; ctx.Err() == nil; alive = true {
		reply, err := c.call(function, a.tensors(life.Int64()+1, order))
		if alive { // Lost now, however long the call took.
			a.since = time.Now()
		}
		if err != nil {
			return err
		}
		actions, err := a.actions(reply)
		if err != nil {
			return err
		}
		a.since, a.answered, a.attempt = time.Now(), true, 0
		if err := a.environments(func(i int) error { return a.slots[i].step(actions[i]) }); err != nil {
			return err
		}
	}
	return nil
}

// claim asks the learner for environments.
func (a *actor) claim(c *client) error {
	for i, f := range c.description.Functions {
		if f.Name != "claim" {
			continue
		}
		count := tensor{dtype: Int32}
		count.append(int32(len(a.slots)))
		reply, err := c.call(i, []tensor{count})
		if err != nil {
			return err
		}
		if len(reply) != 1 || reply[0].dtype != Int32 || len(reply[0].shape) != 1 {
			return status.Error(codes.Internal, "claim did not answer with ids")
		}
		if reply[0].shape[0] != len(a.slots) {
			return status.Errorf(codes.Unavailable, "fewer than %d of the learner's environments (--num_envs) are free; "+
				"those of a dead actor become free after a minute", len(a.slots))
		}
		for i := range a.ids {
			a.ids[i] = reply[0].row(i).([]int32)[0]
		}
		a.claimed = true
		return nil
	}
	return exit(2, "this learner does not hand out environments: give --task=N")
}

var known = map[string]bool{
	"env_ids": true, "run_ids": true, "reward": true, "done": true, "observation": true,
	"abandoned": true, "episode_step": true, "raw_rewards": true, "successes": true,
}

// fit finds the function and the order of its arguments, or says why the learner does not fit.
func fit(d description, spec Spec) (function int, order []string, err error) {
	for i, f := range d.Functions {
		if f.Name != "inference" {
			continue
		}
		for _, argument := range f.Arguments.Tuple {
			names, values := []string{""}, []structure{argument}
			if n := argument.NamedTuple; n != nil {
				names, values = n.Fields, n.Values
			} else if argument.Tensor != nil {
				names[0] = argument.Tensor.Name
			}
			for j, name := range names {
				if name == "observation" && !values[j].is(spec.Observation) {
					return 0, nil, exit(2, "the learner's observations are not %v: start it with the same "+
						"environment", spec.Observation)
				}
				if !known[name] {
					return 0, nil, exit(2, "the learner asks for %q, which this client does not know", name)
				}
				order = append(order, name)
			}
		}
		if words := d.Status.ActionSpace; words != nil && *words != spec.Action.String() {
			return 0, nil, exit(2, "the learner's actions are %s and the environment's %v: start it with the "+
				"same environment", *words, spec.Action)
		}
		return i, order, nil
	}
	return 0, nil, exit(2, "the server there has no function \"inference\": it is not a learner")
}

// tensors returns the arguments of a call in the given order.
func (a *actor) tensors(life int64, order []string) []tensor {
	k := len(a.slots)
	batch := func(dtype DType, of func(i int, s *slot) any) tensor {
		t := tensor{dtype: dtype, shape: []int{k}}
		for i := range a.slots {
			t.append(of(i, &a.slots[i]))
		}
		return t
	}
	named := map[string]tensor{
		"env_ids":      batch(Int32, func(i int, _ *slot) any { return a.ids[i] }),
		"run_ids":      batch(Int64, func(int, *slot) any { return life }),
		"reward":       batch(Float32, func(_ int, s *slot) any { return s.reward }),
		"done":         batch(Bool, func(_ int, s *slot) any { return s.done }),
		"abandoned":    batch(Bool, func(_ int, s *slot) any { return s.abandoned }),
		"episode_step": batch(Int32, func(_ int, s *slot) any { return s.steps }),
		"raw_rewards":  batch(Float32, func(_ int, s *slot) any { return s.raw }),
		"successes":    batch(Float32, func(_ int, s *slot) any { return s.success }),
	}
	var tensors []tensor
	for _, name := range order {
		if name != "observation" {
			tensors = append(tensors, named[name])
			continue
		}
		for j, part := range leaves(a.spec.Observation) {
			dtype, shape := part.tensor()
			t := batch(dtype, func(_ int, s *slot) any { return s.observation[j] })
			t.shape = append([]int{k}, shape...)
			tensors = append(tensors, t)
		}
	}
	return tensors
}

// actions returns the environments' actions.
func (a *actor) actions(reply []tensor) ([]any, error) {
	parts := leaves(a.spec.Action)
	if len(reply) != len(parts) {
		return nil, status.Errorf(codes.Internal, "%d tensors for %v", len(reply), a.spec.Action)
	}
	for j, part := range parts {
		_, shape := part.tensor()
		if want := append([]int{len(a.slots)}, shape...); join(reply[j].shape) != join(want) {
			return nil, status.Errorf(codes.Internal, "actions have the shape %v, not %v", reply[j].shape, want)
		}
	}
	actions := make([]any, len(a.slots))
	for i := range actions {
		var values []any
		for j, part := range parts {
			value, err := part.unpack(reply[j].row(i))
			if err != nil {
				return nil, exit(2, "the learner's action does not fit the environment: %v", err)
			}
			values = append(values, value)
		}
		actions[i] = unflatten(a.spec.Action, func() any {
			value := values[0]
			values = values[1:]
			return value
		})
	}
	return actions, nil
}

// verdict tells whether a life was the last, and with which error Run ends.
func (a *actor) verdict(err error) (done bool, exitError error) {
	if e, ok := err.(*ExitError); ok {
		return true, e
	}
	message := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.OutOfRange:
		return true, nil
	case codes.FailedPrecondition:
		if a.options.Task < 0 { // They were silent for too long.
			a.claimed = false
			return false, nil
		}
		return true, exit(3, "another actor has task %d, and has taken over: %s", a.options.Task, message)
	case codes.InvalidArgument, codes.Unimplemented, codes.PermissionDenied:
		return true, exit(2, "the learner at %s refuses this actor: %s", a.options.ServerAddress, message)
	case codes.Unauthenticated:
		if a.options.AuthTokenFile == "" {
			return true, exit(2, "the learner asks for a token, --auth_token_file: %s", message)
		}
	}
	return false, nil
}

// pause waits before the next attempt, or says that patience is over.
func (a *actor) pause(ctx context.Context, reason error) error {
	patience := a.options.ConnectTimeout
	if a.answered {
		patience = a.options.ReconnectTimeout
	}
	left := time.Until(a.since.Add(patience))
	message := status.Convert(reason).Message()
	if left <= 0 && status.Code(reason) == codes.Unauthenticated {
		return exit(2, "the learner at %s wants another token: %s", a.options.ServerAddress, message)
	}
	if left <= 0 {
		return exit(4, "no learner at %s for %g s; start it, or check --server_address and --tls_...: %s",
			a.options.ServerAddress, patience.Seconds(), message)
	}
	if a.attempt == 0 {
		fmt.Fprintf(os.Stderr, "waiting for the learner at %s for up to %.0f s: %s\n",
			a.options.ServerAddress, left.Seconds(), message)
	}
	pause := time.Duration(math.Min(5, 0.1*math.Pow(2, float64(a.attempt))) * (0.5 + rand.Float64()/2) * 1e9)
	if a.attempt++; pause > left {
		pause = left
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
	return nil
}
