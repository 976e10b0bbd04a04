#!lua flags=allow-oom
-- Removes bodies whose task is gone.
--
-- KEYS[1] penstock:{q}:bodies (SET of ids)   KEYS[2] asynq:{q}:t:   prefix of tasks
-- KEYS[3] penstock:{q}:body:   prefix of bodies
-- ARGV    ids
-- Result: how many were removed
-- Hash tag: {q}; task and body keys are made here. allow-oom: it frees memory.
local n = 0
for _, id in ipairs(ARGV) do
  if redis.call('EXISTS', KEYS[2] .. id) == 0 then
    redis.call('DEL', KEYS[3] .. id)
    n = n + redis.call('SREM', KEYS[1], id)
  end
end
return n
