-- limiter_place: holds a place of a concurrency limit for another lease. A
-- place that was lost is taken again: its request is running.
--
-- KEYS  1 the limit's sorted set
-- ARGV  1 now, or 0 for TIME   2 lease   3 place   4 how many
-- RESULT  1
-- Units microseconds; hash tag as in limiter_head.lua.
local now = tonumber(ARGV[1])
if now == 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local lease = tonumber(ARGV[2])
for i = 1, tonumber(ARGV[4]) do
  redis.call('ZADD', KEYS[1], string.format('%d', now + lease), ARGV[3] .. ':' .. string.format('%d', i))
end
redis.call('PEXPIRE', KEYS[1], string.format('%d', math.ceil(lease / 1000) + 2000))
return 1
