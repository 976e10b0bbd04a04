#!lua flags=allow-oom
-- Forgets one batch of final jobs of one state that were final before a moment.
-- One whose id stands longer, by a keep of its own, comes up again when that is over.
--
-- KEYS[1] penstock:{q}:done:<state> (ZSET id -> when, ms)   KEYS[2] asynq:{q}:completed
-- KEYS[3] asynq:{q}:t:   prefix of tasks   KEYS[4] penstock:{q}:id:   prefix of tombstones
-- KEYS[5] penstock:{q}:body:   prefix of bodies   KEYS[6] penstock:{q}:bodies
-- ARGV[1] keep, ms   ARGV[2] how many at most   ARGV[3] the state
-- Result: {how many were looked at, how many of them were forgotten}
-- Hash tag: {q} on every key; task, tombstone and body keys are made here.
-- allow-oom: it frees memory.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local before = now - tonumber(ARGV[1])
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('(%d', before), 'LIMIT', 0, ARGV[2])
local forgotten = 0
for _, id in ipairs(ids) do
  local stone = redis.call('GET', KEYS[4] .. id)
  local left = stone and string.find(stone, '"s":"' .. ARGV[3] .. '"', 1, true) and redis.call('PTTL', KEYS[4] .. id) or 0
  if left > 0 then
    redis.call('ZADD', KEYS[1], string.format('%d', before + left), id)
  else
    redis.call('ZREM', KEYS[1], id)
    forgotten = forgotten + 1
    -- The id may be another job's by now: only what is final, and not final anew, is removed.
    local state = redis.call('HGET', KEYS[3] .. id, 'state')
    if (not state or state == 'completed') and not stone then
      redis.call('DEL', KEYS[3] .. id, KEYS[5] .. id)
      redis.call('ZREM', KEYS[2], id)
      redis.call('SREM', KEYS[6], id)
    end
  end
end
return {#ids, forgotten}
