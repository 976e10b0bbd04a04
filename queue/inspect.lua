-- Everything known of one job, at one moment.
--
-- KEYS[1] asynq:{q}:t:<id>          KEYS[2] penstock:{q}:id:<id>
-- KEYS[3..5] lanes high, default, low (ZSET id -> due, ms)
-- KEYS[6] penstock:{q}:cancel (ZSET id -> asked, ms)
-- ARGV[1] id
-- Result: {now ms, msg, state, result, tombstone, ms it will still stand,
--          due ms, cancel asked ms}; '' for what is not there.
-- Writes nothing.
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
local task = redis.call('HMGET', KEYS[1], 'msg', 'state', 'result')
local due = redis.call('ZSCORE', KEYS[3], ARGV[1]) or redis.call('ZSCORE', KEYS[4], ARGV[1]) or redis.call('ZSCORE', KEYS[5], ARGV[1])
return {now, task[1] or '', task[2] or '', task[3] or '',
  redis.call('GET', KEYS[2]) or '', redis.call('PTTL', KEYS[2]), due or '',
  redis.call('ZSCORE', KEYS[6], ARGV[1]) or ''}
