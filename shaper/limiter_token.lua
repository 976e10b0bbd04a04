-- token_bucket: tokens, gaining n in per, at most burst.
-- State  last time : tokens (in 1/per) : per
algo.token_bucket = function(key, now, p)
  local full, s = p.burst * p.per, {dirty = false}
  local missing = 0
  local st = read(key)
  if st then
    local tokens, last = st[2], st[1]
    if st[3] ~= p.per then tokens, s.dirty = math.floor(tokens / st[3] * p.per), true end
    if last > now then last, s.dirty = now, true end
    if tokens > full then s.dirty = true end -- the burst was lowered
    missing = drained(math.max(0, full - tokens), now - last, p.n)
  end
  if p.back > 0 then missing, s.dirty = math.max(0, missing - p.back * p.per), true end
  local function left() return div(full - missing, p.per) end
  s.avail = left()
  s.wait = function(c)
    if c > p.burst then return -1 end
    return ceil(math.max(0, missing + c * p.per - full), p.n)
  end
  s.take = function(c)
    missing = missing + c * p.per
    write(key, ceil(missing, p.n), now, full - missing, p.per)
  end
  s.left = left
  s.reset = function() return ceil(left() * p.per, p.n) end
  return s
end
