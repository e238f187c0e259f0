package server

import (
	"strings"
	"testing"
	"time"
)

func TestDefaultsAreValidAndStayOnThisMachine(t *testing.T) {
	c := Defaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{c.GRPCAddr, c.HTTPAddr, c.RESPAddr, c.PeerAddr} {
		if !strings.HasPrefix(addr, "127.0.0.1:740") {
			t.Errorf("address %s", addr)
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	cases := []struct {
		field  string
		change func(*Config)
	}{
		{"grpc_addr", func(c *Config) { c.GRPCAddr = "7400" }},
		{"grpc_addr", func(c *Config) { c.GRPCAddr = "" }},
		{"http_addr", func(c *Config) { c.HTTPAddr = "127.0.0.1:http" }},
		{"http_addr", func(c *Config) { c.HTTPAddr = "127.0.0.1:70000" }},
		{"http_addr", func(c *Config) { c.HTTPAddr = "127.0.0.1:-1" }},
		{"resp_addr", func(c *Config) { c.RESPAddr = c.GRPCAddr }},
		{"peer_addr: 0.0.0.0:7403 can be reached", func(c *Config) { c.PeerAddr = "0.0.0.0:7403" }},
		{"grpc_addr: :7400 can be reached", func(c *Config) { c.GRPCAddr = ":7400" }},
		{"http_addr: [::]:7401 can be reached", func(c *Config) { c.HTTPAddr = "[::]:7401" }},
		{"grpc_addr: liana.example:7400 can be reached", func(c *Config) { c.GRPCAddr = "liana.example:7400" }},
		{"stop_timeout", func(c *Config) { c.StopTimeout = 0 }},
		{"slow_call", func(c *Config) { c.SlowCall = -time.Second }},
		{"http.cors_origins", func(c *Config) { c.HTTP.CORSOrigins = "app.example.com" }},
		{"http.cors_origins", func(c *Config) { c.HTTP.CORSOrigins = "https://a.example.com, https://b.example.com/" }},
		{"http.hosts", func(c *Config) { c.HTTP.Hosts = "liana:7401" }},
		{"limits.max_message_bytes", func(c *Config) { c.Limits.MaxMessageBytes = 1 }},
		{"limits.max_connection_calls", func(c *Config) { c.Limits.MaxConnectionCalls = 0 }},
		{"limits.max_calls", func(c *Config) { c.Limits.MaxCalls = 0 }},
		{"limits.max_call_bytes", func(c *Config) { c.Limits.MaxCallBytes = c.Limits.MaxMessageBytes - 1 }},
		{"limits.max_streams", func(c *Config) { c.Limits.MaxStreams = -1 }},
		{"limits.max_call_time", func(c *Config) { c.Limits.MaxCallTime = 0 }},
	}
	for _, c := range cases {
		cfg := Defaults()
		c.change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("error %v does not name %s", err, c.field)
		}
	}
	both := Defaults()
	both.GRPCAddr, both.StopTimeout = "x", 0
	if err := both.Validate(); !strings.Contains(err.Error(), "grpc_addr") || !strings.Contains(err.Error(), "stop_timeout") {
		t.Errorf("only one of two mistakes: %v", err)
	}
	remote := Defaults()
	remote.GRPCAddr, remote.AllowRemote = "0.0.0.0:7400", true
	if err := remote.Validate(); err != nil {
		t.Errorf("with allow_remote: %v", err)
	}
	for _, addr := range []string{"localhost:1", "[::1]:1", "127.9.9.9:1", "127.0.0.1:0"} {
		local := Defaults()
		local.GRPCAddr = addr
		if err := local.Validate(); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
