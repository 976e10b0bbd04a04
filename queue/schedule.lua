-- Puts one job into a lane: a delayed one, or one of priority high or low. In
-- place of asynq's schedule script; asynq's set has it far in the future, as
-- bookkeeping only. Running it twice does the same as once.
--
-- KEYS[1] asynq:{q}:t:<id>        asynq's task (HASH)
-- KEYS[2] asynq:{q}:scheduled     asynq's set (ZSET id -> Unix s, from the year 2200 on)
-- KEYS[3] penstock:{q}:id:<id>    tombstone of a final job (STRING)
-- KEYS[4] penstock:{q}:lane:<p>   the job's lane (ZSET id -> due, ms)
-- KEYS[5], KEYS[6]                the two other lanes
-- KEYS[7] penstock:{q}:body:<id>  only with a body of its own (STRING)
-- KEYS[8] penstock:{q}:bodies     only with KEYS[7] (SET of ids)
-- ARGV[1] asynq's task message (protobuf)
-- ARGV[2] score in asynq's set, Unix s
-- ARGV[3] id
-- ARGV[4] due, ms since 1970, by Redis TIME
-- ARGV[5] the body, only with KEYS[7]
-- Publishes the id on penstock:{q}:jobs, which wakes inlets.
-- Result: as enqueue.lua's.
-- Hash tag: {q} on every key. No allow-oom: it is refused when Redis is full.
if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then
  local stone = redis.call('GET', KEYS[3])
  if stone then
    return {'final', stone, redis.call('PTTL', KEYS[3])}
  end
  return {'task', redis.call('HGET', KEYS[1], 'msg')}
end
redis.call('HSET', KEYS[1], 'msg', ARGV[1], 'state', 'scheduled')
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[3])
if KEYS[7] then
  redis.call('SET', KEYS[7], ARGV[5])
  redis.call('SADD', KEYS[8], ARGV[3])
end
-- A task deleted in asynqmon leaves its id in a lane; it must not call this one early.
redis.call('ZREM', KEYS[5], ARGV[3])
redis.call('ZREM', KEYS[6], ARGV[3])
redis.call('ZADD', KEYS[4], ARGV[4], ARGV[3])
if redis.call('ZRANK', KEYS[4], ARGV[3]) < 16 then
  redis.call('PUBLISH', string.sub(KEYS[3], 1, -#ARGV[3] - 4) .. 'jobs', ARGV[3])
end
return 1
