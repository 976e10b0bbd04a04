#!lua flags=allow-oom
-- take.lua: the inlet's request. Takes up to k jobs of one provider.
--
-- Purpose  Answer asynq's dequeue for many jobs at once, from the lanes and
--          from asynq's pending list, and leave in Redis what asynq's own
--          dequeue leaves: the id in active, a lease, state active, no
--          pending_since. Beside it, the id is written down as this process's.
-- Order    The pattern says which lane is asked first for each job (shares
--          8 : 4 : 1); a lane with nothing due gives its turn to the next. The
--          default lane is asynq's pending list and, turn about with it, the
--          delayed and retrying jobs of that priority which are due.
-- Skipped  Ids whose task was deleted meanwhile, and lane entries whose task
--          is no longer scheduled or retrying (asynqmon's "run now").
-- Expired  Jobs past their max_age are taken too, but do not count in k: they
--          will use nobody's slot, and must not keep a live job waiting.
-- Units    Times are milliseconds of Redis TIME, leases Unix seconds.
-- Slot     All keys share the hash tag {queue}.
-- allow-oom: taking is what empties a full Redis (RPOPLPUSH would be refused).
--
-- KEYS  1 pending  2 active  3 lease  4 scheduled  5 retry  6 asynq's paused
--       7 paused  8 held_until (us)  9 lane high  10 lane default  11 lane low
--       12 procs  13 owner:<process>  14 control (health's record: its first line)
--       15 cancel
-- ARGV  1 process  2 k  3 at most, expired ones included  4 task key prefix
--       5 pattern of h, d, l  6 heartbeat 0/1  7 lease in s  8 jobs taken and not yet called
-- RESULT  {now, shut, until, next due or 0, full 0/1, processes or 0, then for
--         each job: id, origin, message}
--         shut: '' | paused | held | open | probing (half-open: one job, if any).
--         full: there may be more that is due.
--         origin: p | s:<lane>:<due> | r:<lane>:<due> (which of asynq's sets,
--         lane h, d or l): how to put it back where it was. A ! behind it: its
--         cancellation was asked for while someone had it who died.

local call = redis.call
local function int(x) return string.format('%d', x) end

local t = call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local nprocs = 0
if ARGV[6] == '1' then
  call('ZADD', KEYS[12], int(now), ARGV[1])
  nprocs = call('ZCOUNT', KEYS[12], int(now - 15000), '+inf')
end

local m = call('MGET', KEYS[6], KEYS[7], KEYS[8], KEYS[14])
if m[1] or m[2] then return {int(now), 'paused', '0', '0', 0, nprocs} end
local held = tonumber(m[3] or 0) or 0
if held > now * 1000 then return {int(now), 'held', int(math.ceil(held / 1000)), '0', 0, nprocs} end

local phase, reopens = string.match(m[4] or '', '^1 on %d+ ([%a_]+) %d+ %d+ %d+ %d+ (%d+)')
if phase == 'open' then return {int(now), 'open', int(math.ceil(tonumber(reopens) / 1000)), '0', 0, nprocs} end
local probing = phase == 'half_open'

local k, most, prefix, pattern = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]

if probing then k = tonumber(ARGV[8]) > 0 and 0 or math.min(k, 1) end

-- A source gives ids in order and counts what was looked at.
local function source(fetch)
  return {buf = {}, at = 1, seen = 0, dry = false, fetch = fetch}
end
local function pull(s)
  if s.dry then return nil end
  if s.at > #s.buf then
    s.buf, s.at = s.fetch(s.seen, math.max(k, s.seen)), 1
    if #s.buf == 0 then s.dry = true; return nil end
  end
  local e = s.buf[s.at]
  s.at, s.seen = s.at + 1, s.seen + 1
  return e
end
local function lane(key, letter)
  local s = source(function(from, n)
    local r = call('ZRANGEBYSCORE', key, '-inf', int(now), 'WITHSCORES', 'LIMIT', from, n)
    local out = {}
    for i = 1, #r, 2 do out[#out + 1] = {id = r[i], due = int(tonumber(r[i + 1]))} end
    return out
  end)
  s.key, s.letter, s.gone = key, letter, {}
  return s
end
local pending = source(function(from, n)
  local r = call('LRANGE', KEYS[1], -(from + n), -(from + 1))
  local out = {}
  for i = #r, 1, -1 do out[#out + 1] = {id = r[i]} end
  return out
end)
local high, default, low = lane(KEYS[9], 'h'), lane(KEYS[10], 'd'), lane(KEYS[11], 'l')
local lanes = call('EXISTS', KEYS[9], KEYS[10], KEYS[11]) > 0
if not lanes then high.dry, default.dry, low.dry = true, true, true end

local retryTurn = true
local function fromDefault()
  local first, second = pending, default
  if retryTurn then first, second = default, pending end
  local e, s = pull(first), first
  if not e then e, s = pull(second), second end
  if e and not default.dry then retryTurn = s ~= default end
  return e, s
end
local function from(c)
  if c == 'd' then return fromDefault() end
  local s = c == 'h' and high or low
  return pull(s), s
end

local ids, lease, owner, out = {}, {}, {}, {}
local unpark = {scheduled = {}, retry = {}}
local till = int(tonumber(t[1]) + tonumber(ARGV[7]))
local taken, looked, turn, dry = 0, 0, 0, false
while taken < k and #ids < most and looked < 4 * most do
  local c = string.sub(pattern, turn % #pattern + 1, turn % #pattern + 1)
  local e, s = from(c)
  for _, other in ipairs({'h', 'd', 'l'}) do
    if e then break end
    if other ~= c then e, s = from(other) end
  end
  if not e then dry = true; break end
  looked = looked + 1
  local key = prefix .. e.id
  local msg, state = unpack(call('HMGET', key, 'msg', 'state'))
  if s.gone then s.gone[#s.gone + 1] = e.id end
  if msg and (s == pending or unpark[state]) then
    local origin = 'p'
    if s == pending then
      call('HDEL', key, 'pending_since')
    else
      origin = (state == 'retry' and 'r:' or 's:') .. s.letter .. ':' .. e.due
      table.insert(unpark[state], e.id)
    end
    call('HSET', key, 'state', 'active')
    ids[#ids + 1] = e.id
    lease[#lease + 1] = till; lease[#lease + 1] = e.id
    owner[#owner + 1] = e.id; owner[#owner + 1] = origin
    out[#out + 1] = e.id; out[#out + 1] = origin; out[#out + 1] = msg
    local expires = nil
    local _, stop = string.find(msg, '\n\5p-exp\18', 1, true)
    while stop do -- the last one counts: a replay appends its headers
      local n = string.byte(msg, stop + 1) or 0
      expires = tonumber(string.sub(msg, stop + 2, stop + 1 + n))
      _, stop = string.find(msg, '\n\5p-exp\18', stop + 1, true)
    end
    if not (expires and expires > 0 and expires <= now) then
      taken, turn = taken + 1, turn + 1
    end
  end
end

if pending.seen > 0 then call('RPOP', KEYS[1], pending.seen) end
for _, s in ipairs({high, default, low}) do
  if #s.gone > 0 then call('ZREM', s.key, unpack(s.gone)) end
end
if #unpark.scheduled > 0 then call('ZREM', KEYS[4], unpack(unpark.scheduled)) end
if #unpark.retry > 0 then call('ZREM', KEYS[5], unpack(unpark.retry)) end
if #ids > 0 then
  call('LPUSH', KEYS[2], unpack(ids))
  call('ZADD', KEYS[3], unpack(lease))
  call('HSET', KEYS[13], unpack(owner))
  if call('EXISTS', KEYS[15]) == 1 then
    for i, id in ipairs(ids) do
      if call('ZSCORE', KEYS[15], id) then out[3 * i - 1] = out[3 * i - 1] .. '!' end
    end
  end
end

local due = 0
if dry and lanes then
  for _, s in ipairs({high, default, low}) do
    local first = call('ZRANGE', s.key, 0, 0, 'WITHSCORES')
    if #first > 0 and (due == 0 or tonumber(first[2]) < due) then due = tonumber(first[2]) end
  end
end
local answer = {int(now), probing and 'probing' or '', '0', int(due), dry and 0 or 1, nprocs}
for i = 1, #out do answer[6 + i] = out[i] end
return answer
