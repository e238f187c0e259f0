-- LEASE gives the right to load an entry to the first who asks. ARGV: for how many ms.
if redis.call('SET', KEYS[1], '', 'NX', 'PX', ARGV[1]) then return '1' end
return '0'
