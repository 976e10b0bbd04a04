#!lua flags=allow-oom
-- Gives one job of asynq's set its place in a lane, or takes it out of the set
-- where its task is gone.
--
-- KEYS[1] asynq:{q}:scheduled or retry   KEYS[2] the lane   KEYS[3] asynq:{q}:t:<id>
-- ARGV[1] id   ARGV[2] due, ms   ARGV[3] state the task must have: scheduled or retry
-- ARGV[4] channel that wakes inlets
-- Result: 1 if something was done
-- Hash tag: {q} on every key. allow-oom: it lets jobs out.
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
local state = redis.call('HGET', KEYS[3], 'state')
if state ~= ARGV[3] then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return 1
end
local added = redis.call('ZADD', KEYS[2], 'NX', ARGV[2], ARGV[1])
if added == 1 then redis.call('PUBLISH', ARGV[4], ARGV[1]) end
return added
