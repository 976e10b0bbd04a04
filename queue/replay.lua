-- Makes a final job that is still kept whole one that never ran, and puts it
-- in again. The gate's count of its crashes goes too.
--
-- KEYS[1] asynq:{q}:t:<id>      KEYS[2] penstock:{q}:id:<id>   KEYS[3] asynq:{q}:completed
-- KEYS[4] penstock:{q}:done:<state it has>   KEYS[5] asynq:{q}:pending   KEYS[6] asynq:{q}:scheduled
-- KEYS[7..9] lanes, the job's own first      KEYS[10] penstock:{q}:cancel   KEYS[11] penstock:{q}:crash
-- KEYS[12] asynq:{q}:archived
-- ARGV[1] id   ARGV[2] the message that the caller read   ARGV[3] what makes it new (protobuf, appended)
-- ARGV[4] due, ms   ARGV[5] 'lane' or 'line'   ARGV[6] score in scheduled   ARGV[7] channel that wakes inlets
-- Result: 1 put in; 0 changed since it was read
-- Hash tag: {q} on every key.
local task = redis.call('HMGET', KEYS[1], 'state', 'msg')
if task[1] ~= 'completed' and task[1] ~= 'archived' or task[2] ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[12], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[10], ARGV[1])
redis.call('ZREM', KEYS[8], ARGV[1])
redis.call('ZREM', KEYS[9], ARGV[1])
if redis.call('TYPE', KEYS[11])['ok'] == 'hash' then redis.call('HDEL', KEYS[11], ARGV[1]) end
redis.call('HDEL', KEYS[1], 'result')
local msg = task[2] .. ARGV[3]
if ARGV[5] == 'lane' then
  redis.call('HSET', KEYS[1], 'msg', msg, 'state', 'scheduled')
  redis.call('ZADD', KEYS[6], ARGV[6], ARGV[1])
  redis.call('ZADD', KEYS[7], ARGV[4], ARGV[1])
else
  local t = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'msg', msg, 'state', 'pending',
    'pending_since', string.format('%d%06d000', tonumber(t[1]), tonumber(t[2])))
  redis.call('ZREM', KEYS[7], ARGV[1])
  redis.call('LPUSH', KEYS[5], ARGV[1])
end
redis.call('PUBLISH', ARGV[7], ARGV[1])
return 1
