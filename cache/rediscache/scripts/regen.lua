-- REGEN replaces p, and so forgets all entries of the slot, if p is as expected.
-- It returns p. ARGV: p as it must be [16], new p [16].
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end
return redis.call('GET', KEYS[1])
