-- fixed_window: a counter for each window that begins at a multiple of per.
-- State  window's start : units : per
algo.fixed_window = function(key, now, p)
  local start = div(now, p.per) * p.per
  local count, s = 0, {dirty = false}
  local st = read(key)
  if st then
    if st[1] == start and st[3] == p.per then
      count = st[2]
    elseif st[1] > now or (st[3] ~= p.per and st[1] + st[3] > now) then
      count, s.dirty = st[2], true -- the clock went back, or the period was changed
    end
  end
  if p.back > 0 and div(p.backat, p.per) * p.per == start then
    count, s.dirty = math.max(0, count - p.back), true
  end
  s.avail = p.n - count
  s.wait = function(c)
    if c > p.n then return -1 end
    if count + c <= p.n then return 0 end
    return start + p.per - now
  end
  s.take = function(c)
    count = count + c
    write(key, start + p.per - now, start, count, p.per)
  end
  s.left = function() return p.n - count end
  s.reset = function() return start + p.per - now end
  return s
end
