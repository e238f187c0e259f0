// Package web is Liana's HTTP/JSON door: the calls of proto/liana/v1 that have a
// google.api.http annotation, as JSON, with an OpenAPI document and a page that
// shows it.
//
// The way of a request: guard.go (host, origin) -> body.go (content type, size, time)
// -> gateway (generated: path, query and body into the message) -> Config.Conn. What
// goes wrong on the way back is errors.go's.
//
// The package knows messages and statuses, and nothing of what they mean.
package web
