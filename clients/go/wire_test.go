package seedrl

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

// The examples of docs/wire_format.md and docs/wire_actor.md.
const (
	exampleCall = "53445231 00000100 07000000 00000000 00000000 00000000" +
		"06010000 00000000 08000000 00000000 02000000 00000000 01000000 ffffffff"
	exampleReply = "53445231 01000100 01000000 00000000 00000000 00000000" +
		"08010000 00000000 10000000 00000000 02000000 00000000 01000000 00000000 01000000 00000000"
)

func unhex(text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

func TestEncode(t *testing.T) {
	ids := tensor{dtype: Int32, shape: []int{2}}
	ids.append([]int32{1, -1})
	call := frame{kind: kindCall, id: 7, tensors: []tensor{ids}}.encode()
	if !bytes.Equal(call, unhex(exampleCall)) {
		t.Errorf("%x", call)
	}
}

func TestDecode(t *testing.T) {
	f, err := decodeFrame(unhex(exampleReply))
	if err != nil || f.kind != kindReply || f.id != 1 || !reflect.DeepEqual(f.tensors[0].row(1), []int64{1}) {
		t.Errorf("%+v, %v", f, err)
	}
	failed := frame{kind: kindError, id: 3, code: 11, message: "training is done"}
	if f, err = decodeFrame(failed.encode()); err != nil || !reflect.DeepEqual(f, failed) {
		t.Errorf("%+v, %v", f, err)
	}
}

// Guards the reader against what a broken peer may send: no panic, and nothing accepted.
func TestMalformed(t *testing.T) {
	whole := unhex(exampleReply)
	for n := range whole {
		if _, err := decodeFrame(whole[:n]); err == nil {
			t.Errorf("accepted %d bytes", n)
		}
	}
	if _, err := decodeFrame(append(unhex(exampleReply), 0)); err == nil {
		t.Error("accepted a byte too many")
	}
	for at, value := range map[int]byte{
		0: 0, 4: 3, 5: 1, 16: 1, 20: 1, 24: 13, 25: 17, 26: 1, 28: 1, 32: 8, 40: 1, 46: 8, 47: 0x80,
	} {
		broken := unhex(exampleReply)
		broken[at] = value
		if _, err := decodeFrame(broken); err == nil {
			t.Errorf("accepted %d at %d", value, at)
		}
	}
}
