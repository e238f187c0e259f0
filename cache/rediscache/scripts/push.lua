-- PUSH moves p from one position to a later one and applies what changed between
-- them to every entry that is there, or does nothing. It returns p.
-- KEYS: p, entries. ARGV: p as it must be [16], new position [8], limit and least of
-- windows, then for each entry its kind [1] and operations.

-- A row: a[8] fields[8]… Its operations: number[8] mode[1] field[2] value[8].
local function row(v, ops)
  if #v < 8 or #v % 8 ~= 0 then return nil end
  local a, last = num(v, 1), num(v, 1)
  for o = 1, #ops, 19 do
    local n, mode = num(ops, o), string.byte(ops, o + 8)
    local hi, lo = string.byte(ops, o + 9, o + 10)
    local at = 8 * (256 * hi + lo) + 9 -- of the field in v
    if n > a then
      if at < #v then
        local value = string.sub(ops, o + 11, o + 18)
        if mode ~= 0 then
          local was = num(v, at)
          if was >= 9007199254740992 then return nil end
          was = was + (mode == 1 and 1 or -1)
          if was < 0 then return nil end
          value = pack8(was)
        end
        v = string.sub(v, 1, at - 1) .. value .. string.sub(v, at + 8)
      end
      last = n
    end
  end
  return pack8(last) .. string.sub(v, 9)
end

-- A chunk: a[8] bits[256]. Its operations: number[8] peer[2] on[1].
local function chunk(v, ops)
  if #v ~= 264 then return nil end
  local a, last = num(v, 1), num(v, 1)
  for o = 1, #ops, 11 do
    local n = num(ops, o)
    if n > a then
      local hi, lo, on = string.byte(ops, o + 8, o + 10)
      local i = 256 * hi + lo
      local at = math.floor(i / 8) + 9
      local was, mask = string.byte(v, at), 2 ^ (7 - i % 8)
      local has = math.floor(was / mask) % 2
      if has == on then return nil end
      v = string.sub(v, 1, at - 1) .. string.char(was + (on - has) * mask) .. string.sub(v, at + 1)
      last = n
    end
  end
  return pack8(last) .. string.sub(v, 9)
end

local p = redis.call('GET', KEYS[1])
if p ~= ARGV[1] then return p end
for i = 2, #KEYS do
  local v = redis.call('GET', KEYS[i])
  if v then
    local kind, ops, new = string.sub(ARGV[i + 3], 1, 1), string.sub(ARGV[i + 3], 2), nil
    if kind == 'l' then
      new = window(v, ops, tonumber(ARGV[3]), tonumber(ARGV[4]))
    elseif kind == 'c' then
      new = row(v, ops)
    else
      new = chunk(v, ops)
    end
    if not new then
      redis.call('DEL', KEYS[i])
    elseif new ~= v then
      redis.call('SET', KEYS[i], new, 'KEEPTTL')
    end
  end
end
p = string.sub(p, 1, 8) .. ARGV[2]
redis.call('SET', KEYS[1], p)
return p
