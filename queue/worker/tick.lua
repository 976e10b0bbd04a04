#!lua flags=allow-oom
-- tick.lua: a process's sign of life, and the recovery of what others lost.
--
-- Purpose  Heartbeat of one process. Then, by one process at a time and in
--          batches: give back the jobs of processes that died, those that asynq
--          leaves behind, and find jobs that are in no lane. Nothing is charged
--          to a job here; the gate counts crashes.
--          Jobs go back to the head of where they came from.
-- Clock    When nobody ticked for 15 s (everyone was away, or TIME jumped) or
--          TIME went back, every process is taken for alive once more: a jump
--          must not look like the death of the whole fleet.
-- Units    Times are milliseconds of Redis TIME; asynq's leases Unix seconds
--          of other machines' clocks, so they are never trusted alone.
-- Slot     All keys share the hash tag {queue}.
-- allow-oom: recovering is what lets a full Redis be drained.
--
-- KEYS  1 active  2 lease  3 pending  4 scheduled  5 retry  6 lane high
--       7 lane default  8 lane low  9 procs  10 ticked (hash: at, by, cursor, more)
-- ARGV  1 process ('' = no heartbeat)  2 task key prefix  3 penstock prefix
--       4 a process is dead after (ms)  5 an ownerless lease after (s past its
--       end)  6 batch  7 jobs channel  8 not again within (ms)  9 far (Unix s)
-- RESULT  {now, jobs owned by this process, more 0/1, jobs given back of dead
--         processes, of expired leases, without a lease, without a lane,
--         processes forgotten, nobody ticked before 0/1: data was lost}

local call = redis.call
local function int(x) return string.format('%d', x) end

local t = call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local me, prefix, own, batch, far = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[6]), tonumber(ARGV[9])
local mine = 0
if me ~= '' then
  call('ZADD', KEYS[9], int(now), me)
  mine = call('HLEN', own .. 'owner:' .. me)
end

local ticked = call('HMGET', KEYS[10], 'at', 'by', 'cursor', 'more')
local at = tonumber(ticked[1])
local jumped = at and (now < at or now - at > 15000)
if at and not jumped and now - at < tonumber(ARGV[8]) and not (ticked[4] == '1' and ticked[2] == me) then
  return {int(now), mine, 0, 0, 0, 0, 0, 0, 0}
end
if jumped then
  local all = call('ZRANGE', KEYS[9], 0, 9999)
  for _, p in ipairs(all) do call('ZADD', KEYS[9], int(now), p) end
end

local live = nil
local function ownedAlive(id)
  live = live or call('ZRANGEBYSCORE', KEYS[9], int(now - tonumber(ARGV[4])), '+inf')
  for _, p in ipairs(live) do
    if call('HEXISTS', own .. 'owner:' .. p, id) == 1 then return true end
  end
  return false
end

local more, back = 0, 0
local lanes = {h = KEYS[6], d = KEYS[7], l = KEYS[8]}
local function giveBack(id, origin)
  call('ZREM', KEYS[2], id)
  if call('LREM', KEYS[1], 0, id) == 0 then return 0 end
  local key = prefix .. id
  if call('EXISTS', key) == 0 then return 0 end
  local set, l, due = string.match(origin, '^(%a):(%a):(%d+)$')
  if set and lanes[l] then
    call('HSET', key, 'state', set == 'r' and 'retry' or 'scheduled')
    call('ZADD', set == 'r' and KEYS[5] or KEYS[4], int(far), id)
    call('ZADD', lanes[l], due, id)
  else
    call('HSET', key, 'state', 'pending', 'pending_since', int(now) .. '000000')
    call('RPUSH', KEYS[3], id)
  end
  back = back + 1
  return 1
end

-- 1. Processes without a heartbeat.
local ofDead, forgotten = 0, 0
local dead = call('ZRANGEBYSCORE', KEYS[9], '-inf', '(' .. int(now - tonumber(ARGV[4])), 'LIMIT', 0, batch)
for _, p in ipairs(dead) do
  if ofDead >= batch then more = 1; break end
  local key = own .. 'owner:' .. p
  local stopped = false
  repeat -- a scan from the start: what was looked at is gone
    local cursor, had = '0', {}
    repeat
      cursor, had = unpack(call('HSCAN', key, cursor, 'COUNT', batch))
    until #had > 0 or cursor == '0'
    for i = 1, #had, 2 do
      call('HDEL', key, had[i])
      if not ownedAlive(had[i]) then ofDead = ofDead + giveBack(had[i], had[i + 1]) end
    end
    if ofDead >= batch then more = 1; stopped = true end
  until #had == 0 or stopped
  if not stopped then
    call('ZREM', KEYS[9], p)
    forgotten = forgotten + 1
  end
end
if #dead == batch then more = 1 end

-- 2. Leases long past, of nobody who lives.
local ofLease = 0
local active, leases = call('LLEN', KEYS[1]), call('ZCARD', KEYS[2])
local old = {}
if leases > 0 then
  old = call('ZRANGEBYSCORE', KEYS[2], '-inf', int(tonumber(t[1]) - tonumber(ARGV[5])), 'LIMIT', 0, batch)
end
for _, id in ipairs(old) do
  if not ownedAlive(id) then ofLease = ofLease + giveBack(id, 'p') end
end
if #old == batch and ofLease > 0 then more = 1 end

-- 3. Active without a lease: asynq never looks for them.
local orphans = 0
if ofDead > 0 then active, leases = call('LLEN', KEYS[1]), call('ZCARD', KEYS[2]) end
if active > leases then
  for _, id in ipairs(call('LRANGE', KEYS[1], -10 * batch, -1)) do
    if orphans >= batch then more = 1; break end
    if not call('ZSCORE', KEYS[2], id) then
      if ownedAlive(id) then call('ZADD', KEYS[2], int(tonumber(t[1]) + 30), id)
      else orphans = orphans + giveBack(id, 'p') end
    end
  end
end

-- 4. Parked in asynq's sets, but in no lane: nobody would ever take them.
local laneless = 0
local cursor = tonumber(ticked[3] or 0) or 0
local parked = 0
if call('EXISTS', KEYS[4], KEYS[5]) > 0 then
  parked = call('ZCOUNT', KEYS[4], int(far), '+inf') + call('ZCOUNT', KEYS[5], int(far), '+inf')
end
if parked > 0 and parked > call('ZCARD', KEYS[6]) + call('ZCARD', KEYS[7]) + call('ZCARD', KEYS[8]) then
  local seen = 0
  for _, set in ipairs({KEYS[4], KEYS[5]}) do
    local r = call('ZRANGEBYSCORE', set, int(far), '+inf', 'WITHSCORES', 'LIMIT', cursor, batch)
    seen = math.max(seen, #r / 2)
    for i = 1, #r, 2 do
      local id = r[i]
      if not (call('ZSCORE', KEYS[6], id) or call('ZSCORE', KEYS[7], id) or call('ZSCORE', KEYS[8], id)) then
        local due = math.max(now, (tonumber(r[i + 1]) - far) * 1000)
        call('ZADD', KEYS[7], int(due), id)
        laneless = laneless + 1
      end
    end
  end
  if seen == batch then cursor = cursor + batch; more = 1 else cursor = 0 end
else
  cursor = 0
end

call('HSET', KEYS[10], 'at', int(now), 'by', me, 'cursor', int(cursor), 'more', more)
if back + laneless > 0 then call('PUBLISH', ARGV[7], '') end
return {int(now), mine, more, ofDead, ofLease, orphans, laneless, forgotten, at and 0 or 1}
