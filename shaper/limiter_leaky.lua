-- leaky_bucket, policing: a level, draining n in per; what would rise above
-- burst is refused.
-- State  last time : level (in 1/per) : per
algo.leaky_bucket = function(key, now, p)
  local full, s = p.burst * p.per, {dirty = false}
  local level = 0
  local st = read(key)
  if st then
    local last = st[1]
    level = st[2]
    if st[3] ~= p.per then level, s.dirty = math.ceil(level / st[3] * p.per), true end
    if last > now then last, s.dirty = now, true end
    if level > full then s.dirty = true end -- the burst was lowered
    level = drained(math.min(level, full), now - last, p.n)
  end
  if p.back > 0 then level, s.dirty = math.max(0, level - p.back * p.per), true end
  local function left() return div(full - level, p.per) end
  s.avail = left()
  s.wait = function(c)
    if c > p.burst then return -1 end
    return ceil(math.max(0, level + c * p.per - full), p.n)
  end
  s.take = function(c)
    level = level + c * p.per
    write(key, ceil(level, p.n), now, level, p.per)
  end
  s.left = left
  s.reset = function() return ceil(left() * p.per, p.n) end
  return s
end
