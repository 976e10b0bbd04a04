#!lua flags=allow-oom
-- Takes ids out of a lane that nothing stands behind: the task was deleted,
-- run or archived in asynqmon. One that is active is left to its worker.
--
-- KEYS[1] the lane (ZSET)   KEYS[2] asynq:{q}:t:   prefix of tasks
-- ARGV    ids
-- Result: how many were taken out
-- Hash tag: {q}; task keys are made here. allow-oom: it frees memory.
local n = 0
for _, id in ipairs(ARGV) do
  local state = redis.call('HGET', KEYS[2] .. id, 'state')
  if state ~= 'scheduled' and state ~= 'retry' and state ~= 'active' then
    n = n + redis.call('ZREM', KEYS[1], id)
  end
end
return n
