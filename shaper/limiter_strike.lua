-- limiter_strike: one refusal of a client that goes on all the same.
--
-- Purpose  Counts refusals, and blocks a client for a time that doubles with
--          each block and shrinks again while it keeps quiet. The same steps as
--          Escalation.Step in Go.
-- Units    whole microseconds of Redis TIME; hash tag as in limiter_head.lua
-- KEYS  1 the client's state "strikes:since:level:until"
-- ARGV  1 now, or 0 for TIME   2 strikes   3 within   4 block   5 longest   6 quiet
-- RESULT  {now, strikes, since, level, until}
local now = tonumber(ARGV[1])
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local limit, within, block, longest, quiet = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local v = {0, 0, 0, 0}
local s = redis.call('GET', KEYS[1])
if s then
  local i = 0
  for w in string.gmatch(s, '[^:]+') do
    i = i + 1
    v[i] = tonumber(w)
  end
end
local strikes, since, level, ends = v[1], v[2], v[3], v[4]
if since > now then since = now end -- the clock went back
if ends - now > longest then ends = now + longest end
if now >= ends then
  if level > 0 then
    local calm = math.min(level, math.floor((now - ends) / quiet))
    level = level - calm
    ends = ends + calm * quiet
    if level == 0 then ends = 0 end
  end
  if now - since >= within then strikes, since = 0, now end
  strikes = strikes + 1
  if strikes >= limit then
    local wait = block
    for _ = 1, level do wait = math.min(longest, wait * 2) end
    strikes, level, ends = 0, math.min(level + 1, 62), now + wait
  end
end
local lives = math.max(since + within, ends + level * quiet) - now
local function int(x) return string.format('%d', x) end
redis.call('SET', KEYS[1], table.concat({int(strikes), int(since), int(level), int(ends)}, ':'),
  'PX', int(math.ceil(math.max(lives, 0) / 1000) + 2000))
return {now, strikes, since, level, ends}
