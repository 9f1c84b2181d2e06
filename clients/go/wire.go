// Package seedrl connects environments written in Go to a learner of SEED RL.
//
// Main is all that most programs need. docs/wire_actor.md says what an actor sends and when,
// docs/wire_format.md how it is encoded.
package seedrl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
)

// DType is the type of a tensor's elements, by its number on the wire.
type DType uint8

// The types that Go has. The wire also has float16, bfloat16 and strings, which no space uses here.
const (
	Bool    DType = 0
	Uint8   DType = 1
	Int8    DType = 2
	Uint16  DType = 3
	Int16   DType = 4
	Uint32  DType = 5
	Int32   DType = 6
	Uint64  DType = 7
	Int64   DType = 8
	Float32 DType = 11
	Float64 DType = 12
)

var goTypes = map[DType]reflect.Type{
	Bool: reflect.TypeOf(false), Uint8: reflect.TypeOf(uint8(0)), Int8: reflect.TypeOf(int8(0)),
	Uint16: reflect.TypeOf(uint16(0)), Int16: reflect.TypeOf(int16(0)),
	Uint32: reflect.TypeOf(uint32(0)), Int32: reflect.TypeOf(int32(0)),
	Uint64: reflect.TypeOf(uint64(0)), Int64: reflect.TypeOf(int64(0)),
	Float32: reflect.TypeOf(float32(0)), Float64: reflect.TypeOf(float64(0)),
}

// String returns the name that the learner's description uses, such as "float32".
func (d DType) String() string {
	if t, ok := goTypes[d]; ok {
		return t.String()
	}
	return fmt.Sprintf("dtype %d", uint8(d))
}

// A tensor of a frame: its elements in C order, little-endian.
type tensor struct {
	dtype DType
	shape []int
	data  []byte
}

// append adds the elements of a slice of the tensor's type, such as []float32.
func (t *tensor) append(elements any) {
	buffer := bytes.NewBuffer(t.data)
	if err := binary.Write(buffer, binary.LittleEndian, elements); err != nil {
		panic(err) // not a slice of numbers
	}
	t.data = buffer.Bytes()
}

// row returns the elements [i, ...] as a slice of the tensor's type.
func (t tensor) row(i int) any {
	size := len(t.data) / t.shape[0]
	n := size / int(goTypes[t.dtype].Size())
	elements := reflect.MakeSlice(reflect.SliceOf(goTypes[t.dtype]), n, n).Interface()
	binary.Read(bytes.NewReader(t.data[i*size:]), binary.LittleEndian, elements)
	return elements
}

const (
	magic     = "SDR1"
	kindCall  = 0
	kindReply = 1
	kindError = 2
)

// A frame is one message of the stream.
type frame struct {
	kind    uint8
	id      uint64
	code    uint32 // of a call: the function's index; of an error: its gRPC code
	message string
	tensors []tensor
}

func (f frame) encode() []byte {
	order := binary.LittleEndian
	b := append([]byte(magic), f.kind, 0)
	b = order.AppendUint16(b, uint16(len(f.tensors)))
	b = order.AppendUint64(b, f.id)
	b = order.AppendUint32(b, f.code)
	b = order.AppendUint32(b, uint32(len(f.message)))
	b = append(b, f.message...)
	for _, t := range f.tensors {
		b = append(b, byte(t.dtype), byte(len(t.shape)), 0, 0, 0, 0, 0, 0)
		b = order.AppendUint64(b, uint64(len(t.data)))
		for _, dimension := range t.shape {
			b = order.AppendUint64(b, uint64(dimension))
		}
		b = append(b, t.data...)
	}
	return b
}

var errMalformed = errors.New("malformed frame")

// decodeFrame accepts exactly the frames that docs/wire_format.md allows, of types that Go has.
func decodeFrame(b []byte) (frame, error) {
	order := binary.LittleEndian
	if len(b) < 24 || string(b[:4]) != magic || b[4] > kindError || b[5] != 0 {
		return frame{}, errMalformed
	}
	f := frame{kind: b[4], id: order.Uint64(b[8:]), code: order.Uint32(b[16:])}
	n, m := int(order.Uint16(b[6:])), uint64(order.Uint32(b[20:]))
	b = b[24:]
	if m > uint64(len(b)) || f.kind == kindError && n > 0 || f.kind != kindError && m > 0 ||
		f.kind == kindReply && f.code != 0 {
		return frame{}, errMalformed
	}
	f.message, b = strings.ToValidUTF8(string(b[:m]), "?"), b[m:]
	for i := 0; i < n; i++ {
		t, rest, err := decodeTensor(b)
		if err != nil {
			return frame{}, err
		}
		f.tensors, b = append(f.tensors, t), rest
	}
	if len(b) > 0 {
		return frame{}, errMalformed
	}
	return f, nil
}

func decodeTensor(b []byte) (t tensor, rest []byte, err error) {
	order := binary.LittleEndian
	if len(b) < 16 || b[1] > 16 || !bytes.Equal(b[2:8], make([]byte, 6)) {
		return t, nil, errMalformed
	}
	t.dtype, t.shape = DType(b[0]), make([]int, b[1])
	goType, ok := goTypes[t.dtype]
	if !ok {
		return t, nil, fmt.Errorf("a tensor of %v, which this client does not read", t.dtype)
	}
	payload := order.Uint64(b[8:])
	b = b[16:]
	if len(b) < 8*len(t.shape) {
		return t, nil, errMalformed
	}
	elements, nonzero := uint64(1), uint64(1)
	for i := range t.shape {
		dimension := order.Uint64(b[8*i:])
		if dimension > math.MaxInt64 || dimension > (1<<59)/nonzero {
			return t, nil, errMalformed
		}
		if dimension > 0 {
			nonzero *= dimension
		}
		elements *= dimension
		t.shape[i] = int(dimension)
	}
	b = b[8*len(t.shape):]
	if payload != elements*uint64(goType.Size()) || payload > uint64(len(b)) {
		return t, nil, errMalformed
	}
	t.data = b[:payload]
	return t, b[payload:], nil
}
