-- Puts many jobs in that may be called now and have no body of their own: what
-- enqueue.lua does, for each in its turn, for less.
--
-- KEYS[1] asynq:{q}:pending (LIST)
-- KEYS[2i], KEYS[2i+1]  asynq:{q}:t:<id> and penstock:{q}:id:<id> of the i-th job
-- ARGV[1] now, Unix ns, by the producer's clock (asynq shows it)
-- ARGV[2i], ARGV[2i+1]  id and asynq's task message of the i-th job
-- Publishes the first new id on penstock:{q}:jobs, which wakes inlets.
-- Result: for each job what enqueue.lua would say, or {'error', text}
-- Hash tag: {q} on every key. No allow-oom: it is refused when Redis is full.
local out, new = {}, {}
for i = 2, #KEYS, 2 do
  local task, stone, id = KEYS[i], KEYS[i + 1], ARGV[i]
  local said = 1
  if redis.call('EXISTS', task, stone) > 0 then
    local final = redis.call('GET', stone)
    if final then
      said = {'final', final, redis.call('PTTL', stone)}
    else
      said = {'task', redis.call('HGET', task, 'msg')}
    end
  else
    local ok = redis.pcall('HSET', task, 'msg', ARGV[i + 1], 'state', 'pending', 'pending_since', ARGV[1])
    if type(ok) == 'table' and ok.err then
      said = {'error', ok.err}
    else
      new[#new + 1] = id
    end
  end
  out[#out + 1] = said
end
if #new > 0 then
  local line = redis.call('LPUSH', KEYS[1], unpack(new))
  if line - #new <= 16 then
    redis.call('PUBLISH', string.sub(KEYS[3], 1, -#ARGV[2] - 4) .. 'jobs', new[1])
  end
end
return out
