-- One step of looking for jobs in asynq's set that wait in no lane and would
-- never be called: a crash between two steps, or another program put them there.
--
-- KEYS[1] asynq:{q}:scheduled or retry (ZSET)   KEYS[2..4] lanes high, default, low
-- KEYS[5] asynq:{q}:t:   prefix of tasks
-- ARGV[1] far: only scores from it on are ours    ARGV[2] rank to start at   ARGV[3] how many
-- Result: {how many were looked at, then for each without a lane: id, msg, score}
-- Writes nothing. Task keys are made here, in the slot of KEYS[1].
local first = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[1]) + tonumber(ARGV[2])
local ids = redis.call('ZRANGE', KEYS[1], first, first + tonumber(ARGV[3]) - 1, 'WITHSCORES')
local out = {#ids / 2}
for i = 1, #ids, 2 do
  local id = ids[i]
  if not (redis.call('ZSCORE', KEYS[2], id) or redis.call('ZSCORE', KEYS[3], id) or redis.call('ZSCORE', KEYS[4], id)) then
    out[#out + 1] = id
    out[#out + 1] = redis.call('HGET', KEYS[5] .. id, 'msg') or ''
    out[#out + 1] = ids[i + 1]
  end
end
return out
