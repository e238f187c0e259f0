// Package tiers puts the caches of package cache before the stores of package graph.
// Storage and Log are graph as the caches see it, Reader is the caches as the services
// see them.
package tiers
