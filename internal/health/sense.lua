#!lua flags=allow-oom
-- sense.lua: what one process saw goes into the shared buckets; and where a
-- tick is due, the caller gets all that the law needs.
--
-- Purpose  Adds the window of one process, once: a repetition of the same
--          request (its reply was lost) adds nothing. Whoever finds the tick
--          due claims it and computes; the others get the control record alone.
-- Units    Times are microseconds of Redis TIME, integers written with %d.
-- Slot     All keys share the hash tag {queue}.
-- allow-oom: it is small, and health must not stop when Redis is full.
--
-- KEYS  1 health (hash)  2 buckets (hash "<begin>:<generation>" -> counts)  3 control  4 gate (hash)  5 permits (zset)
--       6 held_until  7 flush:<process>:<request> (the mark of this request)
-- ARGV  1 tick  2 ttl of what is kept, ms  3 1: the caller would tick  4 the mode to be set, '' for none
--       5 windows  6 rows, then for each window: generation, counts; and for each row: generation, 1 where a success
--       came, failures since. Counts are "starts ok throttled failed timeout excluded|bucket:n,bucket:n" (latencies).
-- RESULT  {now, mode, control, due 0/1}, and where due: row, row's since, in flight, held until, cautious, probe's
--       generation, probe's lease, 1 where an operator resumed, then for each bucket: begin, generation, counts

local call = redis.call
local function int(x) return string.format('%d', x) end
local function num(x) return tonumber(x or 0) or 0 end

local t = call('TIME')
local now = num(t[1]) * 1000000 + num(t[2])
local tick = num(ARGV[1])
local nwin, nrow = num(ARGV[5]), num(ARGV[6])
local h = call('HMGET', KEYS[1], 'ticked', 'row', 'rowsince', 'mode', 'resumed')
local ticked, row, rowsince, mode, resumed = num(h[1]), num(h[2]), num(h[3]), h[4] or '', h[5]
local k = call('MGET', KEYS[3], KEYS[6])
local control, held = k[1] or '', num(k[2])
local set = {}
local function put(f, v) set[#set + 1] = f; set[#set + 1] = v end
if ARGV[4] ~= '' and mode ~= ARGV[4] then mode = ARGV[4]; put('mode', mode) end

local function merge(a, b)
  local n, lat = {}, {}
  for _, s in ipairs({a, b}) do
    local head, tail = string.match(s, '^([%d ]*)|(.*)$')
    local i = 0
    for v in string.gmatch(head or '', '%d+') do i = i + 1; n[i] = int((n[i] or 0) + num(v)) end
    for at, v in string.gmatch(tail or '', '(%d+):(%d+)') do lat[at] = (lat[at] or 0) + num(v) end
  end
  local l = {}
  for at, v in pairs(lat) do l[#l + 1] = at .. ':' .. int(v) end
  return table.concat(n, ' ') .. '|' .. table.concat(l, ',')
end

local at = 7
if nwin + nrow > 0 and call('SET', KEYS[7], '1', 'NX', 'PX', '10000') then
  local begin = int(now - now % tick)
  local fields = {}
  for i = 1, nwin do fields[i] = begin .. ':' .. ARGV[at + (i - 1) * 2] end
  if nwin > 0 then
    local have, out = call('HMGET', KEYS[2], unpack(fields)), {}
    for i = 1, nwin do
      local counts = ARGV[at + (i - 1) * 2 + 1]
      out[#out + 1] = fields[i]; out[#out + 1] = have[i] and merge(have[i], counts) or counts
    end
    call('HSET', KEYS[2], unpack(out))
  end
  local since = num(string.match(control, '^%d+ %a+ %d+ [%a_]+ %d+ (%d+)'))
  if rowsince ~= since then row, rowsince = 0, since end
  at = at + nwin * 2
  for i = 0, nrow - 1 do
    if num(ARGV[at + i * 3]) >= since then
      if ARGV[at + i * 3 + 1] == '1' then row = 0 end
      row = row + num(ARGV[at + i * 3 + 2])
    end
  end
  put('row', int(row)); put('rowsince', int(rowsince))
end

-- A little early is due, too: else a beat that comes a moment before its time
-- leaves the tick to the next one.
local due = ARGV[3] == '1' and not (now >= ticked and now - ticked < tick * 4 / 5)
local answer = {int(now), mode, control, due and '1' or '0'}
if due then
  put('ticked', int(now))
  local g = call('HMGET', KEYS[4], 'cautious', 'probe', 'psince', 'puntil')
  local puntil = num(g[4])
  if not g[2] or g[2] == '' then puntil = 0 end
  -- Nobody looked for a while (all restarted, Redis was away, the clock was
  -- set): the prober gets its time again, once.
  if puntil > 0 and puntil <= now and ticked > 0 and now - ticked > 5000000 then
    local lease = num(string.match(control, '^%d+ %a+ %d+ [%a_]+ %d+ %d+ %d+ %d+ %d+ (%d+)'))
    puntil = now + lease
    call('HSET', KEYS[4], 'puntil', int(puntil))
  end
  if resumed then call('HDEL', KEYS[1], 'resumed') end
  local b = call('HGETALL', KEYS[2])
  if #b > 8000 then call('DEL', KEYS[2]); b = {} end
  for _, v in ipairs({int(row), int(rowsince), int(call('ZCARD', KEYS[5])), int(held), g[1] or '', int(num(g[3])), int(puntil),
    resumed and '1' or '0'}) do answer[#answer + 1] = v end
  for i = 1, #b, 2 do
    local begin, gen = string.match(b[i], '^(%d+):(%d+)$')
    answer[#answer + 1] = begin or '0'; answer[#answer + 1] = gen or '0'; answer[#answer + 1] = b[i + 1]
  end
  call('PEXPIRE', KEYS[2], ARGV[2])
end
if #set > 0 then
  call('HSET', KEYS[1], unpack(set))
  if due then call('PEXPIRE', KEYS[1], ARGV[2]) end
end
return answer
