-- One page of the jobs in one of asynq's or our sets, after the last one of
-- the page before. Work is bounded by ARGV[4], whatever the set's size, but
-- for the look-up of the last one in a list.
--
-- KEYS[1] the set: LIST (next to run at the end) or ZSET
-- KEYS[2] asynq:{q}:t:   prefix of tasks   KEYS[3] penstock:{q}:id:   prefix of tombstones
-- KEYS[4..6] lanes high, default, low
-- ARGV[1] 'list' (oldest first), 'zset' (lowest score first), 'zrev' (highest first)
-- ARGV[2] id of the last one ('' for the first page)   ARGV[3] its score ('' for a list)
-- ARGV[4] how many at most
-- ARGV[5] which part of asynq's scheduled: 'foreign' (scores below far: put in by
--         others), 'due' (from far to far + now), 'parked' (later); else all
-- ARGV[6] far, Unix s
-- Result: {now ms, more (1 or 0), then for each: id, score, msg, state, result, tombstone, ms it stands, due ms}
-- Writes nothing. Task and tombstone keys are made here, in the slot of KEYS[1].
local t = redis.call('TIME')
local kind, last, limit = ARGV[1], ARGV[2], tonumber(ARGV[4])
local out = {string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000)), 0}
local ids = {}

if kind == 'list' then
  local stop = -1
  if last ~= '' then
    -- The last one may be gone by now: then all that is left comes after it.
    local at = redis.call('LPOS', KEYS[1], last, 'RANK', -1)
    if at then stop = at - 1 end
    if at == 0 then return out end
  end
  local len = redis.call('LLEN', KEYS[1])
  if stop < 0 then stop = len - 1 end
  local from = math.max(0, stop - limit + 1)
  if stop >= 0 then
    local page = redis.call('LRANGE', KEYS[1], from, stop)
    for i = #page, 1, -1 do
      ids[#ids + 1] = page[i]
      ids[#ids + 1] = ''
    end
    if from > 0 then out[2] = 1 end
  end
else
  local rev = kind == 'zrev'
  local first, stop = 0, redis.call('ZCARD', KEYS[1]) - 1
  local far, due = string.format('(%d', ARGV[6]), string.format('%d', ARGV[6] + t[1])
  if ARGV[5] == 'foreign' or ARGV[5] == 'due' or ARGV[5] == 'parked' then
    local strangers = redis.call('ZCOUNT', KEYS[1], '-inf', far)
    local ready = redis.call('ZCOUNT', KEYS[1], '-inf', due)
    if ARGV[5] == 'foreign' then stop = strangers - 1 end
    if ARGV[5] == 'due' then first, stop = strangers, ready - 1 end
    if ARGV[5] == 'parked' then first = ready end
  end
  if last ~= '' then
    local at = redis.call(rev and 'ZREVRANK' or 'ZRANK', KEYS[1], last)
    if at then
      first = math.max(first, at + 1)
    elseif rev then
      first = math.max(first, redis.call('ZCOUNT', KEYS[1], '(' .. ARGV[3], '+inf'))
    else
      first = math.max(first, redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[3]))
    end
  end
  if first <= stop then
    local upto = math.min(stop, first + limit - 1)
    ids = redis.call(rev and 'ZREVRANGE' or 'ZRANGE', KEYS[1], first, upto, 'WITHSCORES')
    if upto < stop then out[2] = 1 end
  end
end

for i = 1, #ids, 2 do
  local id = ids[i]
  local task = redis.call('HMGET', KEYS[2] .. id, 'msg', 'state', 'result')
  local stone = KEYS[3] .. id
  local due = redis.call('ZSCORE', KEYS[4], id) or redis.call('ZSCORE', KEYS[5], id) or redis.call('ZSCORE', KEYS[6], id)
  for _, v in ipairs({id, ids[i + 1], task[1] or '', task[2] or '', task[3] or '',
    redis.call('GET', stone) or '', redis.call('PTTL', stone), due or ''}) do
    out[#out + 1] = v
  end
end
return out
