package rediscache

import "github.com/redis/go-redis/v9"

// ReaderOptions returns options of a client that a Tier can use: what fails is not
// tried again behind its back, and its deadlines hold.
func ReaderOptions(o redis.UniversalOptions) redis.UniversalOptions {
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.DialerRetries = 1
	// A hit may come from a replica only if p and entries are read by one command.
	// They are, but a replica may be far behind, and then has nothing but misses.
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	return o
}

// FeederOptions returns options of a client that a Feeder can use: those of a reader,
// and it follows no redirection, or a slot under migration would lose changes.
func FeederOptions(o redis.UniversalOptions) redis.UniversalOptions {
	o = ReaderOptions(o)
	o.MaxRedirects = -1
	return o
}
