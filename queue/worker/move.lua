#!lua flags=allow-oom
-- move.lua: brings due jobs from the lanes to asynq's pending list. Only where
-- the inlet is not used, because asynq has changed: else it takes them itself.
--
-- Purpose  high goes to the head of pending, default and low to its end.
-- Units    Milliseconds of Redis TIME.
-- Slot     All keys share the hash tag {queue}.
--
-- KEYS  1 pending  2 scheduled  3 retry  4 lane high  5 lane default  6 lane low
-- ARGV  1 task key prefix  2 batch
-- RESULT  how many were moved

local call = redis.call
local t = call('TIME')
local now = string.format('%d', tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
local moved = 0
for lane = 4, 6 do
  local ids = call('ZRANGEBYSCORE', KEYS[lane], '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))
  for _, id in ipairs(ids) do
    local parked = call('ZREM', KEYS[2], id) + call('ZREM', KEYS[3], id)
    if parked > 0 and call('EXISTS', ARGV[1] .. id) == 1 then
      call('HSET', ARGV[1] .. id, 'state', 'pending', 'pending_since', now .. '000000')
      call(lane == 4 and 'RPUSH' or 'LPUSH', KEYS[1], id)
      moved = moved + 1
    end
    call('ZREM', KEYS[lane], id)
  end
end
return moved
