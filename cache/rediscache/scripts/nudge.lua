-- NUDGE applies one change of a list, told by its writer, to the window that is
-- there, if nothing lies between the window's state and the change. It returns what
-- it did: 0 ignored, 1 applied, 2 dropped the window.
-- KEYS: p, window. ARGV: gen [8], version of the list before [8], limit and least of
-- windows, the operation.
local p, v = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])
if not p or not v or #v < 33 or string.sub(p, 1, 8) ~= ARGV[1] then return '0' end
local e, prev, n = math.max(num(p, 9), num(v, 1)), num(ARGV[2], 1), num(ARGV[5], 1)
if e >= n or prev > e then return '0' end
local new
if prev == 0 then -- the list began with this: whatever the window shows is gone
  if string.byte(ARGV[5], 9) ~= 1 then return '0' end
  new = pack8(n) .. pack8(1) .. string.rep('\0', 16) .. string.char(string.byte(ARGV[5], 10)) .. string.sub(ARGV[5], 11, 26)
else
  new = window(v, ARGV[5], tonumber(ARGV[3]), tonumber(ARGV[4]))
end
if not new then
  redis.call('DEL', KEYS[2])
  return '2'
end
redis.call('SET', KEYS[2], new, 'KEEPTTL')
return '1'
