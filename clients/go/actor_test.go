package seedrl

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

var inf = math.Inf(1)

func TestNames(t *testing.T) {
	for want, space := range map[string]Space{
		"3 choices from 1":                 Discrete{N: 3, Start: 1},
		"[3, 2] choices from [0, 0]":       MultiDiscrete{3, 2},
		"float32[6] from -1 to 1":          Box{Float32, []int{6}, []float64{-1}, []float64{1}},
		"uint8[2, 3] from 0 to 255":        Box{Uint8, []int{2, 3}, []float64{0}, []float64{255}},
		"float32[2] from ['-1', '0'] to 1": Box{Float32, []int{2}, []float64{-1, 0}, []float64{1, 1}},
		"float32[] from -inf to 1e+06":     Box{Float32, nil, []float64{-inf}, []float64{1e6}},
		"{force: float32[2] from -1 to 1, move: 3 choices from 0}": Dict{
			"move": Discrete{N: 3}, "force": Box{Float32, []int{2}, []float64{-1}, []float64{1}}},
	} {
		if got := space.String(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// game ends episodes as its actions say: 1 terminates, 2 truncates, 3 ends a part.
type game struct{ place float32 }

func (g *game) observation() any {
	return map[string]any{"place": []float32{g.place}, "action_mask": []uint8{1, 1, 1, 1}}
}

func (g *game) Reset() (any, error) {
	g.place = 100
	return g.observation(), nil
}

func (g *game) Step(action any) (Step, error) {
	move := action.(map[string]any)["move"].(int)
	g.place++
	success := true
	return Step{Observation: g.observation(), Reward: 2, Success: &success,
		Terminated: move == 1, Truncated: move == 2, PartEnded: move == 3}, nil
}

var gameSpec = Spec{
	Observation: Dict{
		"place": Box{DType: Float32, Shape: []int{1}}, "action_mask": Box{DType: Uint8, Shape: []int{4}},
	},
	Action: Dict{"move": Discrete{N: 4}, "turn": MultiDiscrete{2, 2}},
	New:    func(int) (Env, error) { return &game{}, nil },
}

// Guards the table of episodes in docs/wire_actor.md; CartPole has neither parts nor successes.
func TestEpisodes(t *testing.T) {
	s := slot{env: &game{}, spec: &gameSpec}
	report := func() string {
		return fmt.Sprint(s.reward, s.done, s.abandoned, s.steps, s.success, s.observation[1])
	}
	if err := s.beginLife(); err != nil || report() != "0 false false 0 NaN [100]" {
		t.Fatal(report(), err)
	}
	for i, c := range []struct {
		move int
		want string
	}{
		{0, "2 false false 1 NaN [101]"},
		{3, "2 true false 2 NaN [102]"},
		{1, "2 true false 0 1 [100]"},
		{0, "2 false false 1 NaN [101]"},
		{2, "2 false false 2 1 [102]"},
		{1, "0 true true 0 1 [100]"},
		{0, "2 false false 1 NaN [101]"},
	} {
		if err := s.step(map[string]any{"move": c.move}); err != nil || report() != c.want {
			t.Errorf("step %d: %s, not %s; %v", i, report(), c.want, err)
		}
	}
	if err := s.beginLife(); err != nil || report() != "0 false false 0 NaN [100]" {
		t.Error(report(), err)
	}
}

const gameDescription = `{"protocol": 1, "functions": [{"name": "other"}, {"name": "inference",
"arguments": {"tuple": [{"tensor": {"dtype": "int32", "shape": [null], "name": "env_ids"}},
{"namedtuple": {"name": "EnvOutput", "fields": ["observation", "done"], "values": [
{"dict": {"keys": ["action_mask", "place"], "values": [
{"tensor": {"dtype": "uint8", "shape": [null, 4]}}, {"tensor": {"dtype": "float32", "shape": [null, 1]}}]}},
{"tensor": {"dtype": "bool", "shape": [null]}}]}}]}}],
"status": {"action_space": "{move: 4 choices from 0, turn: [2, 2] choices from [0, 0]}"}}`

// Guards observations and actions of several parts, and that the learner's order is followed.
func TestParts(t *testing.T) {
	var d description
	if err := json.Unmarshal([]byte(gameDescription), &d); err != nil {
		t.Fatal(err)
	}
	function, order, err := fit(d, gameSpec)
	if err != nil || function != 1 {
		t.Fatal(function, order, err)
	}
	a := actor{spec: gameSpec, slots: make([]slot, 2), ids: []int32{2, 3}}
	for i := range a.slots {
		a.slots[i] = slot{env: &game{}, spec: &gameSpec}
		if err := a.slots[i].beginLife(); err != nil {
			t.Fatal(err)
		}
	}
	var sent string
	for _, tensor := range a.tensors(1, order) {
		sent += fmt.Sprint(tensor.dtype, tensor.shape, " ")
	}
	if want := "int32 [2] uint8 [2 4] float32 [2 1] bool [2] "; sent != want {
		t.Errorf("%s, not %s", sent, want)
	}
	move, turn := tensor{dtype: Int64, shape: []int{2}}, tensor{dtype: Int64, shape: []int{2, 2}}
	move.append([]int64{3, 2})
	turn.append([]int64{0, 1, 1, 0})
	actions, err := a.actions([]tensor{move, turn})
	want := map[string]any{"move": 2, "turn": []int64{1, 0}}
	if err != nil || !reflect.DeepEqual(actions[1], want) {
		t.Errorf("%v, not %v; %v", actions, want, err)
	}
	move.data[0] = 4
	if _, err := a.actions([]tensor{move, turn}); err == nil {
		t.Error("accepted an action that the environment does not have")
	}
	if _, err := a.actions([]tensor{move}); err == nil {
		t.Error("accepted a part of an action")
	}
	odd := strings.Replace(gameDescription, "\"done\"", "\"what\"", 1)
	if json.Unmarshal([]byte(odd), &d); d.Functions[1].Arguments.Tuple[1].NamedTuple.Fields[1] != "what" {
		t.Fatal("no such argument")
	}
	if _, _, err := fit(d, gameSpec); err == nil {
		t.Error("accepted an argument that it does not know")
	}
	d = description{}
	json.Unmarshal([]byte(gameDescription), &d)
	for _, other := range []Space{Discrete{N: 4}, Dict{"place": Discrete{N: 4}}, Dict{
		"place": Box{DType: Float32, Shape: []int{2}}, "action_mask": Box{DType: Uint8, Shape: []int{4}}}} {
		if _, _, err := fit(d, Spec{Observation: other, Action: gameSpec.Action}); err == nil {
			t.Errorf("fits %v", other)
		}
	}
}
