package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// maxDepth is how deep the messages of a body may nest; ours need five.
const maxDepth = 32

// marshaler is proto3 JSON with the names of the .proto files. It differs from the
// gateway's in what it takes, one message and nothing behind it, and in its white
// space, which is the same in every build.
type marshaler struct {
	runtime.JSONPb
}

func newMarshaler() *marshaler {
	return &marshaler{runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true},
		UnmarshalOptions: protojson.UnmarshalOptions{RecursionLimit: maxDepth},
	}}
}

// StreamContentType is of answers of many lines.
func (*marshaler) StreamContentType(any) string { return "application/x-ndjson" }

// Marshal ends a whole answer with a new line, for people; the messages of a stream get
// theirs from the gateway.
func (m *marshaler) Marshal(v any) ([]byte, error) {
	b, err := m.JSONPb.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Grow(len(b) + 1)
	if err := json.Compact(&out, b); err != nil {
		return nil, err
	}
	if _, whole := v.(proto.Message); whole {
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

// NewDecoder reads one message.
func (m *marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(b)) == 0 {
			return errNoBody
		}
		msg, ok := v.(proto.Message)
		if !ok { // a rule whose body is one field that is no message
			return m.JSONPb.Unmarshal(b, v)
		}
		return m.UnmarshalOptions.Unmarshal(b, msg)
	})
}

// errNoBody keeps a forgotten body from meaning a message with no field set.
var errNoBody = errors.New("the body is empty; {} is a message without fields")
