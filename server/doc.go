// Package server is Liana's doors to the network: the gRPC services, health
// and reflection, and the HTTP port with metrics and profiles.
//
// A service decodes (names to the schema's numbers), calls the domain and
// encodes; it decides nothing. The domain is what the interfaces of backend.go
// say. Every error becomes a status in one place, errors.go.
//
// The way of a call: calls.go (admission, deadline, metrics, panics, status) ->
// edges.go, reads.go, stream.go, counters.go or admin.go -> names.go -> Backend.
package server
