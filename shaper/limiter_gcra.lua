-- gcra: the theoretical arrival time: each unit moves it on by per/n, and it
-- may lie at most burst units ahead.
-- State  tat : its fraction (in 1/n) : last time : n : per
algo.gcra = function(key, now, p)
  local full, s = p.burst * p.per, {dirty = false}
  local ahead = 0 -- tat - now, in 1/n of a microsecond
  local st = read(key)
  if st then
    local tat, frac, last = st[1], st[2], st[3]
    if last > now then tat, s.dirty = tat - (last - now), true end
    if tat >= now then
      if st[4] == p.n and st[5] == p.per then
        ahead = math.min(tat - now, ceil(full, p.n)) * p.n + frac
      else -- the rate was changed: the units stay owed
        ahead, s.dirty = math.ceil(((tat - now) * st[4] + frac) / st[5] * p.per), true
      end
      if ahead > full then ahead, s.dirty = full, true end -- the burst was lowered
    end
  end
  if p.back > 0 then ahead, s.dirty = math.max(0, ahead - p.back * p.per), true end
  local function left() return div(full - ahead, p.per) end
  s.avail = left()
  s.wait = function(c)
    if c > p.burst then return -1 end
    return ceil(math.max(0, ahead + c * p.per - full), p.n)
  end
  s.take = function(c)
    ahead = ahead + c * p.per
    local us = div(ahead, p.n)
    write(key, us + 1, now + us, ahead - us * p.n, now, p.n, p.per)
  end
  s.left = left
  s.reset = function() return ceil(left() * p.per, p.n) end
  return s
end
