-- Puts one job in that may be called now, in place of asynq's enqueue script,
-- and leaves in Redis what that one would leave. Running it twice does the
-- same as once.
--
-- KEYS[1] asynq:{q}:t:<id>        asynq's task (HASH)
-- KEYS[2] asynq:{q}:pending       asynq's waiting line (LIST)
-- KEYS[3] penstock:{q}:id:<id>    tombstone of a final job (STRING)
-- KEYS[4] penstock:{q}:body:<id>  only with a body of its own (STRING)
-- KEYS[5] penstock:{q}:bodies     only with KEYS[4] (SET of ids)
-- ARGV[1] asynq's task message (protobuf)
-- ARGV[2] id
-- ARGV[3] now, Unix ns, by the producer's clock (asynq shows it)
-- ARGV[4] the body, only with KEYS[4]
-- Publishes the id on penstock:{q}:jobs, which wakes inlets.
-- Result: 1 put in; {'task', message of the task that has the id};
--         {'final', tombstone of the job that had it, ms it will still stand}
-- Hash tag: {q} on every key. No allow-oom: it is refused when Redis is full.
if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then
  local stone = redis.call('GET', KEYS[3])
  if stone then
    return {'final', stone, redis.call('PTTL', KEYS[3])}
  end
  return {'task', redis.call('HGET', KEYS[1], 'msg')}
end
redis.call('HSET', KEYS[1], 'msg', ARGV[1], 'state', 'pending', 'pending_since', ARGV[3])
if KEYS[4] then
  redis.call('SET', KEYS[4], ARGV[4])
  redis.call('SADD', KEYS[5], ARGV[2])
end
-- Behind a long line nobody sleeps: no need to wake anyone.
if redis.call('LPUSH', KEYS[2], ARGV[2]) <= 16 then
  redis.call('PUBLISH', string.sub(KEYS[3], 1, -#ARGV[2] - 4) .. 'jobs', ARGV[2])
end
return 1
