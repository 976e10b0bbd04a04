-- How many jobs are in each state, without looking at any of them.
--
-- KEYS[1] asynq:{q}:pending (LIST)     KEYS[2] asynq:{q}:active (LIST)
-- KEYS[3] asynq:{q}:scheduled (ZSET)   KEYS[4] asynq:{q}:retry (ZSET)
-- KEYS[5] asynq:{q}:archived (ZSET)
-- KEYS[6..9] penstock:{q}:done:succeeded, dead, expired, cancelled (ZSET)
-- ARGV[1] far: score in scheduled of a job in a lane that is due; of one that
--         is not due, far + its due time in s
-- Result: {waiting, delayed, retrying, running, succeeded, dead, expired, cancelled}
-- Writes nothing.
local far = tonumber(ARGV[1])
local due = redis.call('ZCOUNT', KEYS[3], string.format('%d', far), string.format('%d', far + tonumber(redis.call('TIME')[1])))
return {redis.call('LLEN', KEYS[1]) + due, redis.call('ZCARD', KEYS[3]) - due, redis.call('ZCARD', KEYS[4]), redis.call('LLEN', KEYS[2]),
  redis.call('ZCARD', KEYS[6]), redis.call('ZCARD', KEYS[7]) + redis.call('ZCARD', KEYS[5]),
  redis.call('ZCARD', KEYS[8]), redis.call('ZCARD', KEYS[9])}
