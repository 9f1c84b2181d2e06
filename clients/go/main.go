package seedrl

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Options are an actor's flags.
type Options struct {
	ServerAddress                    string
	Task, EnvBatchSize               int
	ConnectTimeout, ReconnectTimeout time.Duration
	AuthTokenFile                    string
	TLSCA, TLSCert, TLSKey           string
}

// stopTimeout is how long an environment may still step after a signal.
const stopTimeout = 3 * time.Second

// Main is a whole actor: it reads the flags of the command line, also those that the program has
// defined in package flag, steps environments, and exits.
func Main(spec Spec) {
	rand.Seed(time.Now().UnixNano())
	options, err := parse(flag.CommandLine, os.Args[1:])
	if err == flag.ErrHelp {
		os.Exit(0)
	}
	if err == nil {
		ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		go func() {
			<-ctx.Done()
			time.Sleep(stopTimeout)
			os.Exit(0)
		}()
		err = Run(ctx, options, spec)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(err.(*ExitError).Code)
	}
}

func parse(flags *flag.FlagSet, args []string) (o Options, err error) {
	var connect, reconnect float64
	flags.StringVar(&o.ServerAddress, "server_address", "localhost:8686", "host:port, or unix:/path")
	flags.IntVar(&o.Task, "task", -1, "number of the actor, from 0; -1 asks the learner for environments")
	flags.IntVar(&o.EnvBatchSize, "env_batch_size", 1, "number of its environments")
	flags.Float64Var(&connect, "connect_timeout_s", 600, "how long to wait for the learner at the start")
	flags.Float64Var(&reconnect, "reconnect_timeout_s", 600, "how long to wait for a learner that was lost")
	flags.StringVar(&o.AuthTokenFile, "auth_token_file", "", "file with the learner's token")
	flags.StringVar(&o.TLSCA, "tls_ca", "", "PEM file with the authorities of the learner; turns on TLS")
	flags.StringVar(&o.TLSCert, "tls_cert", "", "PEM file with this actor's certificate, for the proxy")
	flags.StringVar(&o.TLSKey, "tls_key", "", "PEM file with its key")
	flags.Init(os.Args[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	if err := flags.Parse(args); err == flag.ErrHelp {
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return o, err
	} else if err != nil {
		return o, exit(2, "%v; --help lists the flags", err)
	}
	o.ConnectTimeout = time.Duration(connect * float64(time.Second))
	o.ReconnectTimeout = time.Duration(reconnect * float64(time.Second))
	switch {
	case flags.NArg() > 0:
		return o, exit(2, "%q is not a flag; --help lists them", flags.Arg(0))
	case !strings.Contains(o.ServerAddress, ":"):
		return o, exit(2, "--server_address must be host:port or unix:/path, not %q", o.ServerAddress)
	case o.Task < -1 || o.EnvBatchSize < 1:
		return o, exit(2, "--task must be at least -1 and --env_batch_size 1")
	case (o.TLSCert == "") != (o.TLSKey == ""), o.TLSCert != "" && o.TLSCA == "":
		return o, exit(2, "--tls_cert and --tls_key go together, and with --tls_ca")
	}
	// A mistake in these files should not wait for the learner.
	if _, err := dialOptions(o); err != nil {
		return o, exit(2, "%v", err)
	}
	if _, err := withToken(context.Background(), o.AuthTokenFile); err != nil {
		return o, exit(2, "%v", err)
	}
	return o, nil
}
