-- sliding_log: the time of every unit of the last period, oldest first.
-- State  a list of times
algo.sliding_log = function(key, now, p)
  local s = {dirty = false}
  local newest = call('LINDEX', key, -1)
  local function push(times)
    for i = 1, #times, 1000 do
      call('RPUSH', key, unpack(times, i, math.min(i + 999, #times)))
    end
  end
  if newest and num(newest) > now then -- the clock went back
    local by, all = num(newest) - now, call('LRANGE', key, 0, -1)
    for i, v in ipairs(all) do all[i] = int(num(v) - by) end
    call('DEL', key)
    push(all)
    s.dirty = true
  end
  while true do
    local first = call('LRANGE', key, 0, 99)
    local gone = 0
    while gone < #first and num(first[gone + 1]) <= now - p.per do gone = gone + 1 end
    if gone > 0 then call('LTRIM', key, gone, -1) end
    if gone < 100 then break end
  end
  local count = call('LLEN', key)
  s.avail = p.n - count
  s.wait = function(c)
    if c > p.n then return -1 end
    if count + c <= p.n then return 0 end
    return num(call('LINDEX', key, count + c - p.n - 1)) + p.per - now
  end
  s.take = function(c)
    local times = {}
    for i = 1, c do times[i] = int(now) end
    push(times)
    count = count + c
    if count > 0 then call('PEXPIRE', key, int(math.ceil(p.per / 1000) + 2000)) end
  end
  s.left = function() return p.n - count end
  s.reset = function()
    if count == 0 then return 0 end
    return num(call('LINDEX', key, -1)) + p.per - now
  end
  return s
end
