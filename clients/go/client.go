package seedrl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	attemptTimeout = 3 * time.Second
	maxMessage     = 64 << 20
)

// rawCodec passes messages on as bytes: v is a *[]byte.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (rawCodec) Name() string { return "raw" }

// A structure describes nested tensors. Those of other kinds than these fit no space.
type structure struct {
	Tensor *struct {
		DType string
		Shape *[]*int // nil: any
		Name  string
	}
	Tuple      []structure
	NamedTuple *struct {
		Fields []string
		Values []structure
	}
	Dict *struct {
		Keys   []string
		Values []structure
	}
}

// A description is what Describe answers.
type description struct {
	Protocol  int
	Functions []struct {
		Name      string
		Arguments structure
	}
	Status struct {
		ActionSpace *string `json:"action_space"`
	}
}

// is tells whether a structure has the types and shapes of a batch of a space's values.
func (s structure) is(space Space) bool {
	dict, ok := space.(Dict)
	if !ok {
		dtype, shape := space.(leaf).tensor()
		return s.Tensor != nil && s.Tensor.DType == dtype.String() &&
			(s.Tensor.Shape == nil || matches(*s.Tensor.Shape, shape))
	}
	if s.Dict == nil || join(s.Dict.Keys) != join(dict.keys()) {
		return false
	}
	for i, key := range s.Dict.Keys {
		if !s.Dict.Values[i].is(dict[key]) {
			return false
		}
	}
	return true
}

// matches tells whether described dimensions are those of a batch; nil is any size.
func matches(described []*int, shape []int) bool {
	if len(described) != len(shape)+1 {
		return false
	}
	for i, dimension := range shape {
		if d := described[i+1]; d != nil && *d != dimension {
			return false
		}
	}
	return true
}

// A client is a connection to a learner. Its errors have a code of gRPC.
type client struct {
	connection  *grpc.ClientConn
	description description
	context     context.Context // with the token
	stream      grpc.ClientStream
	cancel      context.CancelFunc
	calls       uint64
}

// connect makes one attempt to reach the learner and asks what it is.
func connect(ctx context.Context, o Options) (*client, error) {
	c := &client{}
	ctx, c.cancel = context.WithCancel(ctx)
	options, err := dialOptions(o)
	if err == nil {
		ctx, err = withToken(ctx, o.AuthTokenFile)
	}
	if err != nil {
		c.cancel()
		// Main has read the files before, so they are being replaced.
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	c.context = ctx
	c.connection, err = grpc.DialContext(ctx, "passthrough:///"+authority(o), options...)
	if err != nil {
		c.cancel()
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := c.describe(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *client) describe() error {
	ctx, cancel := context.WithTimeout(c.context, attemptTimeout)
	defer cancel()
	var request, reply []byte
	if err := c.connection.Invoke(ctx, "/seed_rl.Inference/Describe", &request, &reply); err != nil {
		return err
	}
	// Only the protocol is sure to be a number if it is another one.
	var head struct{ Protocol any }
	if err := json.Unmarshal(reply, &head); err != nil {
		return status.Error(codes.InvalidArgument, "what answers there is not a learner")
	}
	if head.Protocol != 1.0 {
		return status.Errorf(codes.InvalidArgument,
			"the learner speaks protocol %v and this client 1: use versions that fit", head.Protocol)
	}
	if err := json.Unmarshal(reply, &c.description); err != nil {
		return status.Errorf(codes.InvalidArgument, "the learner's description: %v", err)
	}
	return nil
}

// call sends tensors to a function and waits for its reply.
func (c *client) call(function int, tensors []tensor) ([]tensor, error) {
	if c.stream == nil {
		// The deadline is for opening the stream, not for its life.
		timer := time.AfterFunc(attemptTimeout, c.cancel)
		stream, err := c.connection.NewStream(c.context,
			&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/seed_rl.Inference/Call")
		if timer.Stop(); err != nil {
			return nil, err
		}
		c.stream = stream
	}
	c.calls++
	request := frame{kind: kindCall, id: c.calls, code: uint32(function), tensors: tensors}.encode()
	// An error of sending is io.EOF, and the reason comes with the answer.
	if err := c.stream.SendMsg(&request); err != nil && err != io.EOF {
		return nil, err
	}
	var message []byte
	if err := c.stream.RecvMsg(&message); err == io.EOF {
		return nil, status.Error(codes.Unavailable, "the learner has ended the stream")
	} else if err != nil {
		return nil, err
	}
	answer, err := decodeFrame(message)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "the learner's answer: %v", err)
	}
	if answer.kind == kindError {
		return nil, status.Error(codes.Code(answer.code), answer.message)
	}
	if answer.kind != kindReply || answer.id != c.calls {
		return nil, status.Error(codes.Internal, "the learner has answered something else")
	}
	return answer.tensors, nil
}

func (c *client) close() {
	c.cancel()
	c.connection.Close()
}

// authority is the name by which the learner is known to TLS and HTTP/2.
func authority(o Options) string {
	if strings.HasPrefix(o.ServerAddress, "unix:") {
		return "localhost"
	}
	return o.ServerAddress
}

func dialOptions(o Options) ([]grpc.DialOption, error) {
	network, address := "tcp", o.ServerAddress
	if strings.HasPrefix(address, "unix:") {
		network, address = "unix", strings.TrimPrefix(address, "unix:")
	}
	options := []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithDisableServiceConfig(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 20 * time.Second}),
	}
	if o.TLSCA == "" || network == "unix" {
		// Deprecated in newer versions; 1.33 has nothing else.
		return append(options, grpc.WithInsecure()), nil
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	authorities, err := os.ReadFile(o.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("--tls_ca: %w", err)
	}
	if !config.RootCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("--tls_ca: %s has no certificates", o.TLSCA)
	}
	if o.TLSCert != "" {
		certificate, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("--tls_cert, --tls_key: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return append(options, grpc.WithTransportCredentials(credentials.NewTLS(config))), nil
}

func withToken(ctx context.Context, file string) (context.Context, error) {
	if file == "" {
		return ctx, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return ctx, fmt.Errorf("--auth_token_file: %w", err)
	}
	token := strings.TrimSpace(string(content))
	printable := strings.IndexFunc(token, func(r rune) bool { return r < ' ' || r > '~' }) < 0
	if token == "" || len(token) > 4096 || !printable {
		return ctx, errors.New("--auth_token_file: a token has 1 to 4096 characters of ASCII")
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), nil
}
