package resp

import (
	"errors"
	"fmt"
	"time"
)

// Config bounds what clients of the port can ask of the process. Each field is described
// in docs/configuration.md under its YAML name.
type Config struct {
	// MaxConnections bounds the open connections; more are refused.
	MaxConnections int `yaml:"max_connections"`
	// IdleTimeout ends a connection that has sent no whole command for so long; 0: never.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// MaxArgs bounds the arguments of a command.
	MaxArgs int `yaml:"max_args"`
	// MaxCommandBytes bounds the arguments of a command together.
	MaxCommandBytes int `yaml:"max_command_bytes"`
	// MaxOutputBytes bounds the replies that a client has not read yet; it is cut off where
	// it takes none of them for WriteTimeout.
	MaxOutputBytes int           `yaml:"max_output_bytes"`
	WriteTimeout   time.Duration `yaml:"write_timeout"`
	// MaxBufferBytes bounds the buffers of all connections, beyond the few KiB that each has.
	MaxBufferBytes int `yaml:"max_buffer_bytes"`
	// CallTime is how long a batch of commands may take. Clients that give up earlier, and
	// repeat what they sent, count twice.
	CallTime time.Duration `yaml:"call_time"`
}

// Defaults are bounds for one machine.
func Defaults() Config {
	return Config{
		MaxConnections: 10_000, IdleTimeout: 10 * time.Minute,
		MaxArgs: 1 << 16, MaxCommandBytes: 1 << 20,
		MaxOutputBytes: 16 << 20, WriteTimeout: 10 * time.Second,
		MaxBufferBytes: 128 << 20,
		CallTime:       2500 * time.Millisecond, // go-redis gives up after 3 s, and sends again
	}
}

// The least that the bounds can be: a command of some size must pass.
const (
	minCommandBytes = 4 << 10
	minOutputBytes  = 64 << 10
)

// Validate names every field that is wrong, by its YAML name.
func (c Config) Validate() error {
	var errs []error
	least := func(field string, got, want int) {
		if got < want {
			errs = append(errs, fmt.Errorf("resp.%s: %d (allowed: %d or more)", field, got, want))
		}
	}
	least("max_connections", c.MaxConnections, 1)
	least("max_args", c.MaxArgs, 16)
	least("max_command_bytes", c.MaxCommandBytes, minCommandBytes)
	least("max_output_bytes", c.MaxOutputBytes, minOutputBytes)
	least("max_buffer_bytes", c.MaxBufferBytes, 2*c.MaxCommandBytes)
	for _, d := range []struct {
		field string
		got   time.Duration
		least time.Duration
	}{
		{"idle_timeout", c.IdleTimeout, 0},
		{"write_timeout", c.WriteTimeout, 10 * time.Millisecond},
		{"call_time", c.CallTime, 10 * time.Millisecond},
	} {
		if d.got < d.least {
			errs = append(errs, fmt.Errorf("resp.%s: %v (allowed: %v or more)", d.field, d.got, d.least))
		}
	}
	return errors.Join(errs...)
}
