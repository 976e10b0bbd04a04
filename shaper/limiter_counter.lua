-- sliding_counter: this window's count, and the last one's, weighed by how
-- much of it the sliding window still covers.
-- State  window's start : units of the window before : units : per
algo.sliding_counter = function(key, now, p)
  local start = div(now, p.per) * p.per
  local prev, cur, s = 0, 0, {dirty = false}
  local st = read(key)
  if st then
    if st[1] > now or (st[4] ~= p.per and st[1] + st[4] > now) then
      cur, s.dirty = st[3], true -- the clock went back, or the period was changed
      if st[4] == p.per then prev = st[2] end
    elseif st[4] == p.per and st[1] == start then
      prev, cur = st[2], st[3]
    elseif st[4] == p.per and st[1] == start - p.per then
      prev = st[3]
    end
  end
  if p.back > 0 then
    local at = div(p.backat, p.per) * p.per
    if at == start then
      cur, s.dirty = math.max(0, cur - p.back), true
    elseif at == start - p.per then
      prev, s.dirty = math.max(0, prev - p.back), true
    end
  end
  local inside = start + p.per - now -- of the last window, still covered
  local function left() return p.n - cur - ceil(prev * inside, p.per) end
  -- cover is the longest part of a window of count units that leaves room.
  local function cover(room, count)
    if count == 0 then return p.per end
    return math.min(p.per, div(room * p.per, count))
  end
  s.avail = left()
  s.wait = function(c)
    if c > p.n then return -1 end
    if cur + c <= p.n then return math.max(0, inside - cover(p.n - cur - c, prev)) end
    return inside + p.per - cover(p.n - c, cur)
  end
  s.take = function(c)
    cur = cur + c
    write(key, inside + p.per, start, prev, cur, p.per)
  end
  s.left = left
  s.reset = function()
    if cur > 0 then return inside + p.per end
    if prev > 0 then return inside end
    return 0
  end
  return s
end
