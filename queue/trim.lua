#!lua flags=allow-oom
-- Forgets one batch of final jobs of one state that were final before a moment.
--
-- KEYS[1] penstock:{q}:done:<state> (ZSET id -> when, ms)   KEYS[2] asynq:{q}:completed
-- KEYS[3] asynq:{q}:t:   prefix of tasks   KEYS[4] penstock:{q}:id:   prefix of tombstones
-- KEYS[5] penstock:{q}:body:   prefix of bodies   KEYS[6] penstock:{q}:bodies
-- ARGV[1] keep, ms   ARGV[2] how many at most
-- Result: how many were forgotten
-- Hash tag: {q} on every key; task, tombstone and body keys are made here.
-- allow-oom: it frees memory.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('(%d', now - tonumber(ARGV[1])), 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
  redis.call('ZREM', KEYS[1], id)
  -- The id may be another job's by now: only what is final, and not final anew, is removed.
  local state = redis.call('HGET', KEYS[3] .. id, 'state')
  if (not state or state == 'completed') and redis.call('EXISTS', KEYS[4] .. id) == 0 then
    redis.call('DEL', KEYS[3] .. id, KEYS[5] .. id)
    redis.call('ZREM', KEYS[2], id)
    redis.call('SREM', KEYS[6], id)
  end
end
return #ids
