-- concurrency: a place for each request in flight, leased.
-- State  a sorted set: place -> the end of its lease
algo.concurrency = function(key, now, p)
  local s = {dirty = false}
  local newest = call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  local by = newest[2] and num(newest[2]) - p.lease - now or 0
  if by > 0 then -- the clock went back, or the lease was shortened
    local all = call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do call('ZADD', key, int(num(all[i + 1]) - by), all[i]) end
    s.dirty = true
  end
  call('ZREMRANGEBYSCORE', key, '-inf', int(now))
  local count = call('ZCARD', key)
  local mine = call('ZSCORE', key, p.place .. ':1')
  s.avail = p.n - count
  if mine then s.avail = p.n end -- asked again: it has its places already
  s.wait = function(c)
    if c > p.n then return -1 end
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    local lease = first[2] and num(first[2]) - now or 0
    return math.max(0, math.min(lease, 1000000)) -- nobody knows when a request ends
  end
  s.take = function(c)
    local i = 1
    while c > 0 and (i <= c or mine) do
      local name = p.place .. ':' .. int(i)
      if mine and not call('ZSCORE', key, name) then break end -- as many as it has
      call('ZADD', key, int(now + p.lease), name)
      i = i + 1
    end
    if c > 0 then call('PEXPIRE', key, int(math.ceil(p.lease / 1000) + 2000)) end
    if not mine then count = count + c end
  end
  s.left = function() return p.n - count end
  s.reset = function() return 0 end
  return s
end
