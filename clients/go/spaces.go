package seedrl

import (
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
)

// A Space says what observations or actions are: Discrete, MultiDiscrete, Box or Dict. Its String is
// what a learner calls it.
type Space interface{ String() string }

// Discrete is one of N choices. Its values are of type int, from Start to Start+N-1.
type Discrete struct{ N, Start int }

// MultiDiscrete has as many choices for each of its numbers. Its values are of type []int64, each
// counted from 0.
type MultiDiscrete []int

// Box is an array of numbers. Its values are slices of the type that DType names, such as []float32,
// in C order. Actions have bounds, with one element if it holds for all numbers.
type Box struct {
	DType     DType
	Shape     []int
	Low, High []float64
}

// Dict has values of type map[string]any.
type Dict map[string]Space

func (s Discrete) String() string { return fmt.Sprintf("%d choices from %d", s.N, s.Start) }

func (s MultiDiscrete) String() string {
	return fmt.Sprintf("[%s] choices from [%s]", join(s), join(make([]int, len(s))))
}

func (s Box) String() string {
	return fmt.Sprintf("%v[%s] from %s to %s", s.DType, join(s.Shape), bound(s.Low), bound(s.High))
}

func (s Dict) String() string {
	var parts []string
	for _, key := range s.keys() {
		parts = append(parts, key+": "+s[key].String())
	}
	return "{" + join(parts) + "}"
}

func (s Dict) keys() []string {
	keys := make([]string, 0, len(s))
	for key := range s {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func join[T any](values []T) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = fmt.Sprint(value)
	}
	return strings.Join(texts, ", ")
}

// bound formats like "-1", or "['-1', '0']" if the numbers differ.
func bound(values []float64) string {
	texts := make([]string, len(values))
	equal := len(values) > 0
	for i, value := range values {
		texts[i] = strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(value, 'g', 6, 64)), "+")
		equal = equal && value == values[0]
	}
	if equal {
		return texts[0]
	}
	return "['" + strings.Join(texts, "', '") + "']"
}

// A leaf is a space whose values are one tensor.
type leaf interface {
	Space
	tensor() (DType, []int)
	// pack returns a value's elements, as a slice of the tensor's type.
	pack(value any) (any, error)
	// unpack returns the value of an action's elements.
	unpack(elements any) (any, error)
}

// leaves returns the leaves of a space in the order of the wire.
func leaves(space Space) (all []leaf) {
	dict, ok := space.(Dict)
	if !ok {
		return []leaf{space.(leaf)}
	}
	for _, key := range dict.keys() {
		all = append(all, leaves(dict[key])...)
	}
	return all
}

// flatten appends the elements of each tensor of an observation to packed.
func flatten(space Space, value any, packed []any) ([]any, error) {
	dict, ok := space.(Dict)
	if !ok {
		elements, err := space.(leaf).pack(value)
		return append(packed, elements), err
	}
	values, ok := value.(map[string]any)
	if !ok || len(values) != len(dict) {
		return nil, fmt.Errorf("the observation is not a map[string]any with %v", dict.keys())
	}
	var err error
	for _, key := range dict.keys() {
		if packed, err = flatten(dict[key], values[key], packed); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return packed, nil
}

// unflatten builds an action from the values of its leaves.
func unflatten(space Space, next func() any) any {
	dict, ok := space.(Dict)
	if !ok {
		return next()
	}
	values := map[string]any{}
	for _, key := range dict.keys() {
		values[key] = unflatten(dict[key], next)
	}
	return values
}

func (s Discrete) tensor() (DType, []int)      { return Int64, nil }
func (s MultiDiscrete) tensor() (DType, []int) { return Int64, []int{len(s)} }
func (s Box) tensor() (DType, []int)           { return s.DType, s.Shape }

func (s Discrete) pack(value any) (any, error) {
	if choice, ok := value.(int); ok {
		return []int64{int64(choice)}, nil
	}
	return nil, fmt.Errorf("the value is a %T instead of an int", value)
}

func (s MultiDiscrete) pack(value any) (any, error) {
	return Box{DType: Int64, Shape: []int{len(s)}}.pack(value)
}

func (s Box) pack(value any) (any, error) {
	size := 1
	for _, dimension := range s.Shape {
		size *= dimension
	}
	want := reflect.SliceOf(goTypes[s.DType])
	if reflect.TypeOf(value) != want || reflect.ValueOf(value).Len() != size {
		return nil, fmt.Errorf("the value is not a %v of %d elements", want, size)
	}
	return value, nil
}

func (s Discrete) unpack(elements any) (any, error) {
	return s.choice(reflect.ValueOf(elements).Index(0))
}

// choice converts an action of any integer type.
func (s Discrete) choice(value reflect.Value) (int, error) {
	if !value.CanInt() {
		return 0, fmt.Errorf("%v is no type for %v", value.Type(), s)
	}
	if choice := int(value.Int()); choice >= s.Start && choice < s.Start+s.N {
		return choice, nil
	}
	return 0, fmt.Errorf("%v is none of %v", value, s)
}

func (s MultiDiscrete) unpack(elements any) (any, error) {
	choices := make([]int64, len(s))
	for i, n := range s {
		choice, err := Discrete{N: n}.choice(reflect.ValueOf(elements).Index(i))
		if err != nil {
			return nil, err
		}
		choices[i] = int64(choice)
	}
	return choices, nil
}

func (s Box) unpack(elements any) (any, error) {
	if got := reflect.TypeOf(elements).Elem(); got != goTypes[s.DType] {
		return nil, fmt.Errorf("%v is no type for %v", got, s)
	}
	return elements, nil
}
