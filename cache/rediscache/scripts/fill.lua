-- FILL stores an entry that was read from storage, unless the slot has moved on
-- meanwhile or a later state is there. It returns whether it did.
-- KEYS: p, entry. ARGV: gen [8], the entry, time to live in ms.
local p = redis.call('GET', KEYS[1])
if not p or string.sub(p, 1, 8) ~= ARGV[1] or num(ARGV[2], 1) < num(p, 9) then return '0' end
local was = redis.call('GETRANGE', KEYS[2], 0, 7)
if #was == 8 and num(was, 1) >= num(ARGV[2], 1) then return '0' end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return '1'
