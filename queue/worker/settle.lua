#!lua flags=allow-oom
-- settle.lua: what became of jobs this process took, many in one request.
--
-- Purpose  Move each job from asynq's active list to where its fate sends it.
--          A job that this process no longer owns (reclaimed meanwhile) is left
--          alone: whoever has it now decides.
-- Units    Times are milliseconds of Redis TIME unless said otherwise.
-- Slot     All keys share the hash tag {queue}.
-- allow-oom: settling frees memory and must work when Redis is full.
--
-- KEYS  1 active  2 lease  3 pending  4 scheduled  5 retry  6 completed
--       7 lane high  8 lane default  9 lane low  10 owner:<process>  11 cancel
--       12 bodies  13 processed:<day>  14 processed  15 failed:<day>  16 failed
-- ARGV  1 task key prefix  2 penstock prefix  3 statistics' end (Unix s)
--       4 jobs channel  5 number of jobs, then for each ten:
--       kind  id  counted as failed 0/1  message  a  b  c  d  e  and, of a final
--       one, asynq's unique lock or ''
--       d  done: the task is gone.            a: has a body of its own 0/1
--       c  completed, kept for people to see. a: score in completed (Unix s)
--          b: result  c: tombstone or ''  d: its TTL in ms  e: index or ''
--       r  again.  a: lane h, d or l  b: due in ms from now  c: park score's
--          base (Unix s)
--       b  given back as it was.  a: origin (see take.lua)
--          c: park score (Unix s)
-- RESULT  for each job: 'ok' | 'gone' (not ours any more) | 'cancelled' (kind r
--         or b of a job whose cancellation was asked for: nothing done, send c)

local call = redis.call
local function int(x) return string.format('%d', x) end

local prefix, own, n = ARGV[1], ARGV[2], tonumber(ARGV[5])
local AT = 6
local lanes = {h = KEYS[7], d = KEYS[8], l = KEYS[9]}

local ids = {}
for i = 0, n - 1 do ids[#ids + 1] = ARGV[AT + i * 10 + 1] end
local mine = call('HMGET', KEYS[10], unpack(ids))
local now = nil
local function clock()
  if not now then
    local t = call('TIME')
    now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
  end
  return now
end

local wanted = nil -- is any cancellation asked for at all?
local function cancelled(id)
  if wanted == nil then wanted = call('EXISTS', KEYS[11]) == 1 end
  return wanted and call('ZSCORE', KEYS[11], id)
end

local out, unlease, disown, del, nobody, uncancel, push = {}, {}, {}, {}, {}, {}, {}
local processed, failed = 0, 0
for i = 0, n - 1 do
  local at = AT + i * 10
  local kind, id, bad, msg = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local a, b, c, d, e = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7], ARGV[at + 8]
  local key = prefix .. id
  local lock = ARGV[at + 9]
  if not mine[i + 1] then
    out[#out + 1] = 'gone'
  elseif (kind == 'r' or kind == 'b') and cancelled(id) then
    out[#out + 1] = 'cancelled'
  else
    out[#out + 1] = 'ok'
    call('LREM', KEYS[1], -1, id) -- the oldest are at the tail
    unlease[#unlease + 1] = id
    disown[#disown + 1] = id
    if bad == '1' then failed = failed + 1 end
    if lock ~= '' and call('GET', lock) == id then call('DEL', lock) end
    if kind == 'd' then
      processed = processed + 1
      del[#del + 1] = key
      if a == '1' then del[#del + 1] = own .. 'body:' .. id; nobody[#nobody + 1] = id end
      if cancelled(id) then uncancel[#uncancel + 1] = id end
    elseif kind == 'c' then
      processed = processed + 1
      if cancelled(id) then uncancel[#uncancel + 1] = id end
      if call('EXISTS', key) == 1 then
        call('ZADD', KEYS[6], a, id)
        call('HSET', key, 'msg', msg, 'state', 'completed', 'result', b)
      end
      if c ~= '' then call('SET', own .. 'id:' .. id, c, 'PX', d) end
      if c ~= '' and e ~= '' then call('ZADD', own .. e, int(clock()), id) end
    elseif kind == 'r' then
      if bad == '1' then processed = processed + 1 end
      if call('EXISTS', key) == 1 then
        local due = clock() + tonumber(b)
        local park = tonumber(c)
        if due > clock() then park = park + math.ceil(due / 1000) end
        call('HSET', key, 'msg', msg, 'state', 'retry')
        call('ZADD', KEYS[5], int(park), id)
        call('ZADD', lanes[a], int(due), id)
      end
    elseif call('EXISTS', key) == 1 then
      local set, l, due = string.match(a, '^(%a):(%a):(%d+)$')
      if set then
        call('HSET', key, 'state', set == 'r' and 'retry' or 'scheduled')
        call('ZADD', set == 'r' and KEYS[5] or KEYS[4], c, id)
        call('ZADD', lanes[l], due, id)
      else
        call('HSET', key, 'state', 'pending', 'pending_since', int(clock()) .. '000000')
        push[#push + 1] = id
      end
    end
  end
end
if #unlease > 0 then
  call('ZREM', KEYS[2], unpack(unlease))
  call('HDEL', KEYS[10], unpack(disown))
end
if #del > 0 then call('DEL', unpack(del)) end
if #nobody > 0 then call('SREM', KEYS[12], unpack(nobody)) end
if #uncancel > 0 then call('ZREM', KEYS[11], unpack(uncancel)) end
if #push > 0 then call('RPUSH', KEYS[3], unpack(push)); call('PUBLISH', ARGV[4], '') end

local function count(day, total, by)
  if by == 0 then return end
  if call('INCRBY', day, by) == by then call('EXPIREAT', day, ARGV[3]) end
  call('INCRBY', total, by)
end
count(KEYS[13], KEYS[14], processed)
count(KEYS[15], KEYS[16], failed)
return out
