#!lua flags=allow-oom
-- Cancels one job: at once where nobody has it, else by asking who has it.
--
-- KEYS[1] asynq:{q}:t:<id>       KEYS[2] penstock:{q}:id:<id>
-- KEYS[3] asynq:{q}:pending      KEYS[4] asynq:{q}:scheduled   KEYS[5] asynq:{q}:retry
-- KEYS[6] asynq:{q}:completed    KEYS[7..9] lanes high, default, low
-- KEYS[10] penstock:{q}:cancel   KEYS[11] penstock:{q}:done:cancelled
-- ARGV[1] id                     ARGV[2] channel of running jobs to be stopped
-- ARGV[3] the tombstone, with "t":0 for its time
-- ARGV[4] keep, ms               ARGV[5] the message that the caller read
-- ARGV[6] what makes the message a completed task's (protobuf, appended)
-- Result: {'gone'}; {'final', tombstone}; {'archived'}; {'changed'}: read again; {'asked'}; {'done'}
-- Hash tag: {q} on every key. allow-oom: cancelling must work when Redis is full.
local stone = redis.call('GET', KEYS[2])
if stone then return {'final', stone} end
local task = redis.call('HMGET', KEYS[1], 'state', 'msg', 'result')
local state = task[1]
if not state then return {'gone'} end
if state == 'completed' then return {'final', task[3] or ''} end
if state == 'archived' then return {'archived'} end
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
if state == 'active' then
  redis.call('ZADD', KEYS[10], now, ARGV[1])
  redis.call('PUBLISH', ARGV[2], ARGV[1])
  return {'asked'}
end
if task[2] ~= ARGV[5] then return {'changed'} end
redis.call('LREM', KEYS[3], 0, ARGV[1])
for i = 4, 5 do redis.call('ZREM', KEYS[i], ARGV[1]) end
for i = 7, 9 do redis.call('ZREM', KEYS[i], ARGV[1]) end
redis.call('ZREM', KEYS[10], ARGV[1])
local made = string.gsub(ARGV[3], '"t":0', '"t":' .. now, 1)
redis.call('HSET', KEYS[1], 'msg', task[2] .. ARGV[6], 'state', 'completed', 'result', made)
redis.call('HDEL', KEYS[1], 'pending_since')
redis.call('ZADD', KEYS[6], string.format('%d', tonumber(t[1]) + math.ceil(tonumber(ARGV[4]) / 1000)), ARGV[1])
redis.call('ZADD', KEYS[11], now, ARGV[1])
redis.call('SET', KEYS[2], made, 'PX', ARGV[4])
return {'done'}
