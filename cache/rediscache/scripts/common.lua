-- Numbers that may pass 2^53 (times, ids) are only compared, in halves of 32 bits;
-- Lua's own order of strings follows the locale.

local function num(s, i)
  local hi, lo = struct.unpack('>I4I4', s, i)
  return hi * 4294967296 + lo
end

local function pack8(n)
  return struct.pack('>I4I4', math.floor(n / 4294967296), n % 4294967296)
end

-- less compares the edges at a[i..] and b[j..].
local function less(a, i, b, j)
  local a1, a2, a3, a4 = struct.unpack('>I4I4I4I4', a, i)
  local b1, b2, b3, b4 = struct.unpack('>I4I4I4I4', b, j)
  if a1 ~= b1 then return a1 < b1 end
  if a2 ~= b2 then return a2 < b2 end
  if a3 ~= b3 then return a3 < b3 end
  return a4 < b4
end

-- find returns the number of edges in body below key, and whether key is the next.
local function find(body, key)
  local lo, hi = 0, #body / 16
  while lo < hi do
    local mid = math.floor((lo + hi) / 2)
    if less(body, 16 * mid + 1, key, 1) then lo = mid + 1 else hi = mid end
  end
  return lo, string.sub(body, 16 * lo + 1, 16 * lo + 16) == key
end

-- A window: a[8] total[8] floor[16] flags[1] edges[16]…
-- Its operations: number[8] kind[1] props[1] edge[16] old edge[16].
-- window applies those past a. It returns nil where they do not fit.
local function window(v, ops, limit, least)
  if #v < 33 or (#v - 33) % 16 ~= 0 then return nil end
  local a, total, floor = num(v, 1), num(v, 9), string.sub(v, 17, 32)
  local flags, body, last = string.byte(v, 33), string.sub(v, 34), num(v, 1)
  local function remove(key)
    if #body / 16 ~= total and less(key, 1, floor, 1) then return true end
    local i, found = find(body, key)
    if found then body = string.sub(body, 1, 16 * i) .. string.sub(body, 16 * i + 17) end
    return found
  end
  local function add(key, complete)
    if not complete and less(key, 1, floor, 1) then return true end
    local i, found = find(body, key)
    if not found then body = string.sub(body, 1, 16 * i) .. key .. string.sub(body, 16 * i + 1) end
    return not found
  end
  for o = 1, #ops, 42 do
    local n, kind, props = num(ops, o), string.byte(ops, o + 8), string.byte(ops, o + 9)
    if n > a then
      local edge, old = string.sub(ops, o + 10, o + 25), string.sub(ops, o + 26, o + 41)
      local complete, fits = #body / 16 == total, true
      if kind == 1 then
        fits, total = add(edge, complete), total + 1
      elseif kind == 2 then
        fits, total = remove(edge), total - 1
      else
        fits = remove(old) and add(edge, complete)
      end
      if not fits or total < #body / 16 then return nil end
      if props == 1 then flags = 1 end
      if #body / 16 > limit then
        body = string.sub(body, -16 * limit)
        floor = string.sub(body, 1, 16)
      end
      last = n
    end
  end
  if #body / 16 < total and #body / 16 < least then return nil end
  return pack8(last) .. pack8(total) .. floor .. string.char(flags) .. body
end
