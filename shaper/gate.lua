#!lua flags=allow-oom
-- gate.lua: one request of one process to the gate of one provider.
--
-- Purpose  In this order: settle finished permits, renew leases, expire dead
--          ones, then decide for each arrival, all limits together, and commit
--          only what is granted. A request is idempotent: its answer is kept
--          under reply:<process> and given again to a repetition.
-- Units    Times are whole microseconds of Redis TIME. Accounts count
--          thousandths of a token. Integers are written with %d: tostring()
--          loses digits of them.
-- Slot     All keys share the hash tag {queue}.
-- allow-oom: settling frees places and must work when Redis is full.
--
-- KEYS  1 gate (hash)        2 permits (zset id -> lease end)   3 running (hash job -> permit)
--       4 crash (hash job -> n)   5 expired (zset permit -> when)  6 control  7 held_until  8 paused
--       9 turns (hash process -> "served due seen")  10 reply:<process>  11 refused (set of jobs: credentials)
--       12 accounts (hash)
-- ARGV  1 protocol  2 process  3 request number  4 sequence last seen  5 lease  6 horizon
--       7 key prefix  8 wake channel  9 waiting in this process  10 sign of life 0/1 (once a second)
--       11 n  12 per  13 headroom  14 burst  15 concurrency  16 interval  17 file fingerprint (11-17, 21: used if lost)
--       18 settlements  19 renewals  20 arrivals  21 limits version known, then
--       settlement: permit, job, code and what the code says:
--         k  called, ok: nothing more       o  the same with a record: value, ttl ms, index
--         *  kind (c called, r not called), outcome, tat given back or 0, hold µs, refused 0/1, capped 0/1, account,
--            credit (back, for r), record name, value, ttl ms, index, member, cost
--       renewal:    permit, job
--       arrival:    permit, job, code and what the code says:
--         1  cost 1   r  the same, refused where the record id:<job> stands
--         *  cost, account, charge, record name
--       An index is a sorted set below the prefix that gets the member (o: the job) at the time in ms.
-- RESULT  {now, answer}; answer is lines of text:
--       now, seq, interval, concurrency, in flight (0 where it is not limited), limits version, n, per, headroom, burst,
--       shut reason, shut until, processes (0: not counted this time), rollback 0/1, lost permits, its ids…, then for
--       each arrival three:
--       g, delay, tat | n, ask again in, reason | x, reason, what there is to say (JSON)

local call = redis.call
local function int(x) return string.format('%d', x) end
local function num(x) return tonumber(x or 0) or 0 end

local proc, reqno, lease, horizon, prefix = ARGV[2], ARGV[3], num(ARGV[5]), num(ARGV[6]), ARGV[7]
local nset, nren, narr = num(ARGV[18]), num(ARGV[19]), num(ARGV[20])

local t = call('TIME')
local now = num(t[1]) * 1000000 + num(t[2])

-- Where everything stands in ARGV: settlements first, then renewals, then arrivals.
local at = 22
local setAt, arrAt = {}, {}
local SET_MORE, ARR_MORE = {k = 0, o = 3, ['*'] = 14}, {['1'] = 0, r = 0, ['*'] = 4}
for i = 1, nset do setAt[i] = at; at = at + 3 + SET_MORE[ARGV[at + 2]] end
local AT_REN = at
at = at + nren * 2
local mkeys = {KEYS[10], KEYS[6], KEYS[7], KEYS[8]}
local hasRecord = {}
for i = 1, narr do
  arrAt[i] = at
  local code = ARGV[at + 2]
  local name = code == 'r' and 'id:' .. ARGV[at + 1] or code == '*' and ARGV[at + 6] or ''
  if name ~= '' then mkeys[#mkeys + 1] = prefix .. name; hasRecord[i] = #mkeys end
  at = at + 3 + ARR_MORE[code]
end
local kept = call('MGET', unpack(mkeys))
if kept[1] then
  local sep = string.find(kept[1], ' ', 1, true)
  if string.sub(kept[1], 1, sep - 1) == reqno then return {int(now), string.sub(kept[1], sep + 1)} end
end
local held, paused = num(kept[3]), kept[4]

local F = {'seq', 'last', 'tat', 'iv', 'learn', 'quiet', 'xat', 'crashes', 'v', 'n', 'per', 'headroom', 'burst', 'conc',
  'liv', 'cautious', 'probe', 'reason', 'nref'}
local got = call('HMGET', KEYS[1], unpack(F))
local g = {}
for i, f in ipairs(F) do g[f] = got[i] end
local tat, iv, last = num(g.tat), num(g.iv), num(g.last)
local set = {}              -- fields of the gate to write
local function put(f, v) set[#set + 1] = f; set[#set + 1] = v end

-- Clock. Backwards: everything that lies in the future moves with it, once.
-- Forwards, or nobody asked for 5 s: leases start anew before any expires.
if last > 0 and now < last then
  local by = last - now
  tat = tat - by
  local all = call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do call('ZADD', KEYS[2], int(num(all[i + 1]) - by), all[i]) end
  if held > 0 then held = held - by; call('SET', KEYS[7], int(held)) end
  if num(g.learn) > 0 then g.learn = num(g.learn) - by; put('learn', int(g.learn)) end
  if num(g.quiet) > 0 then g.quiet = num(g.quiet) - by; put('quiet', int(g.quiet)) end
  g.xat = 0
  local turns = call('HGETALL', KEYS[9])
  for i = 1, #turns, 2 do
    local s, d, e = string.match(turns[i + 1], '(%S+) (%S+) (%S+)')
    call('HSET', KEYS[9], turns[i], s .. ' ' .. int(num(d) - by) .. ' ' .. int(num(e) - by))
  end
elseif last > 0 and now - last > 5000000 then
  local all = call('ZRANGE', KEYS[2], 0, -1)
  for i = 1, #all do call('ZADD', KEYS[2], int(now + lease), all[i]) end
end

-- Limits lost (flush, failover): written again from what the process knows.
if not g.v then
  g.v, g.n, g.per, g.headroom, g.burst, g.conc, g.liv = ARGV[21], ARGV[11], ARGV[12], ARGV[13], ARGV[14], ARGV[15], ARGV[16]
  call('HSET', KEYS[1], 'v', g.v, 'n', g.n, 'per', g.per, 'headroom', g.headroom, 'burst', g.burst, 'conc', g.conc,
    'liv', g.liv, 'file', ARGV[17])
end
local conc, burst = num(g.conc), num(g.burst)

-- Rollback: the store knows less than this process has seen.
local seq, seen, rollback = num(g.seq), num(ARGV[4]), 0
local learn, quiet = num(g.learn), num(g.quiet)
if seq < seen then
  rollback = 1
  seq = seen
  if learn <= now then
    learn, quiet = now + lease, 0
    if conc > 0 then quiet = now + math.floor(lease * 3 / 10) end
    tat = math.max(tat, now + horizon)
    put('learn', int(learn)); put('quiet', int(quiet))
  end
end
seq = seq + 1
local learning = learn > now

-- Interval in force. What is owed keeps its number of calls, not its time.
local niv = num(g.liv)
if learning then niv = niv * 2; burst = 1 end
if niv ~= iv then
  if iv > 0 and tat > now then tat = now + math.floor((tat - now) / iv * niv) end
  iv = niv
end

-- Settlements.
local freed, wakeall = 0, false
local crashes = num(g.crashes)
local cautious, probe, nref = g.cautious or '', g.probe or '', num(g.nref)
local function takeBackCrash(id, job)
  if call('ZREM', KEYS[5], id) == 0 then return false end
  if job ~= '' then
    if call('HINCRBY', KEYS[4], job, -1) <= 0 then call('HDEL', KEYS[4], job) end
    crashes = call('HLEN', KEYS[4])
  end
  return true
end
-- A call that ended clears its job's crash count.
local function calledJobs()
  local out = {}
  for i = 1, nset do
    local a = setAt[i]
    if ARGV[a + 1] ~= '' and (ARGV[a + 2] ~= '*' or ARGV[a + 3] == 'c') then out[#out + 1] = ARGV[a + 1] end
  end
  return out
end
local ids, jobs, index, live = {}, {}, {}, {}
for i = 1, nset do
  ids[i] = ARGV[setAt[i]]
  local job = ARGV[setAt[i] + 1]
  if job ~= '' then jobs[#jobs + 1] = job end
end
if nset > 0 then
  freed = call('ZREM', KEYS[2], unpack(ids))
  if freed == nset then
    if #jobs > 0 then call('HDEL', KEYS[3], unpack(jobs)) end
    if crashes > 0 then crashes = crashes - call('HDEL', KEYS[4], '', unpack(calledJobs())) end
  else
    -- Some were not ours any more: a job's entry goes only with its own permit.
    for i, id in ipairs(ids) do
      local job = ARGV[setAt[i] + 1]
      if job ~= '' and call('HGET', KEYS[3], job) == id then call('HDEL', KEYS[3], job) end
      if takeBackCrash(id, job) then live[i] = false end
    end
    if crashes > 0 then crashes = crashes - call('HDEL', KEYS[4], '', unpack(calledJobs())) end
  end
end
local function record(name, value, ttl, ix, member)
  call('SET', prefix .. name, value, 'PX', ttl)
  if ix ~= '' then
    local list = index[ix] or {}
    index[ix] = list
    list[#list + 1] = int(math.floor(now / 1000)); list[#list + 1] = member
  end
end
local function hold(us, reason)
  if now + us <= held then return end
  held = now + us
  call('SET', KEYS[7], int(held))
  if reason then put('reason', reason); g.reason = reason end
end
-- What the credentials' fate says: five different jobs refused in a row hold
-- the provider, and a probe each minute tries again.
local function credentials(id, job, called, outcome, refused)
  if refused then
    call('SADD', KEYS[11], job ~= '' and job or id)
    nref = call('SCARD', KEYS[11])
    if cautious == 'credentials' or nref >= 5 then
      cautious = 'credentials'
      hold(60000000, 'credentials')
    end
  elseif called and outcome == 'ok' then
    if nref > 0 then call('DEL', KEYS[11]); nref = 0 end
    if cautious == 'credentials' and g.reason == 'credentials' and held > 0 then
      held = 0
      call('DEL', KEYS[7])
    end
    if cautious ~= '' then cautious = ''; wakeall = true end
  elseif called and cautious == 'credentials' and outcome ~= 'excluded' then
    hold(60000000)
  end
end
for i = 1, nset do
  local a = setAt[i]
  local id, job, code = ids[i], ARGV[a + 1], ARGV[a + 2]
  if code == '*' then
    local called, outcome, back = ARGV[a + 3] == 'c', ARGV[a + 4], num(ARGV[a + 5])
    if not called and live[i] ~= false and back > 0 and tat == back and iv > 0 then
      tat = tat - iv * num(ARGV[a + 16])     -- the newest slot, not used: the line goes back
    end
    if live[i] ~= false and ARGV[a + 9] ~= '' and num(ARGV[a + 10]) ~= 0 then
      call('HINCRBY', KEYS[12], ARGV[a + 9], int(num(ARGV[a + 10])))
    end
    local us = num(ARGV[a + 6])
    if us > 0 and now + us > held then
      hold(us, 'retry_after')
      if ARGV[a + 8] == '1' then cautious = 'retry_after' end
    end
    credentials(id, job, called, outcome, ARGV[a + 7] == '1')
    if ARGV[a + 11] ~= '' then record(ARGV[a + 11], ARGV[a + 12], ARGV[a + 13], ARGV[a + 14], ARGV[a + 15]) end
  else
    if nref > 0 or cautious ~= '' then credentials(id, job, true, 'ok', false) end
    if code == 'o' then record('id:' .. job, ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], job) end
  end
  if probe == id then probe = '' end
end
for name, list in pairs(index) do call('ZADD', prefix .. name, unpack(list)) end

-- Renewals, by id: a permit that is gone comes back while learning or while there is room.
local lost = {}
if nren > 0 then
  local inflight = nil
  for i = 0, nren - 1 do
    local id, job = ARGV[AT_REN + i * 2], ARGV[AT_REN + i * 2 + 1]
    if call('ZSCORE', KEYS[2], id) then
      call('ZADD', KEYS[2], int(now + lease), id)
    else
      inflight = inflight or call('ZCARD', KEYS[2])
      local other = job ~= '' and call('HGET', KEYS[3], job)
      local free = not other or other == id or not call('ZSCORE', KEYS[2], other)
      if free and (learning or conc == 0 or inflight < conc) then
        call('ZADD', KEYS[2], int(now + lease), id)
        if job ~= '' then call('HSET', KEYS[3], job, id) end
        takeBackCrash(id, job)
        inflight = inflight + 1
      else
        lost[#lost + 1] = id
      end
    end
  end
end

-- Leases that ran out: at most four times a second, in lots of 100.
local function expire(id)
  if call('ZREM', KEYS[2], id) == 0 then return end
  local job = string.match(id, '^[^:]*:(.*)$') or ''
  call('ZADD', KEYS[5], int(now), id)
  if job ~= '' then
    if call('HGET', KEYS[3], job) == id then call('HDEL', KEYS[3], job) end
    call('HINCRBY', KEYS[4], job, 1)
    crashes = call('HLEN', KEYS[4])
  end
  if probe == id then
    probe = ''
    if now + 60000000 > held then held = now + 60000000; call('SET', KEYS[7], int(held)) end
  end
end
if now >= num(g.xat) then
  local dead = call('ZRANGEBYSCORE', KEYS[2], '-inf', int(now), 'LIMIT', 0, 100)
  for _, id in ipairs(dead) do expire(id); freed = freed + 1 end
  call('ZREMRANGEBYSCORE', KEYS[5], '-inf', int(now - 86400000000))
  put('xat', int(#dead == 100 and now or now + 250000))
end

-- Shut for everybody?
local shut, shutUntil = '', 0
if paused then shut = 'paused'
elseif held > now then shut, shutUntil = g.reason or 'held', held
elseif quiet > now then shut, shutUntil = 'learning', quiet end

-- Turns: who waits, and how much was each served.
local waitingHere = num(ARGV[9])
local others, least, most, nproc, leastProc, nextDue = 0, nil, 0, 1, nil, nil
local served, mineKnown = 0, false
local turns = {}
-- With nothing to share there are no turns: only a sign of life, now and then.
local sharing = iv > 0 or conc > 0
local touch = ARGV[10] == '1'
local look = touch or (sharing and narr > 0) or (conc > 0 and freed > 0)
if look then turns = call('HGETALL', KEYS[9]) end
for i = 1, #turns, 2 do
  local s, d, e = string.match(turns[i + 1], '(%S+) (%S+) (%S+)')
  s, d, e = num(s), num(d), num(e)
  if turns[i] == proc then
    served, mineKnown = s, now - e < 2000000
  elseif now - e > 60000000 then
    call('HDEL', KEYS[9], turns[i])
  else
    if now - e < 15000000 then nproc = nproc + 1 end
    if now - e < 2000000 and s > most then most = s end
    if d > 0 and now <= d + 20000 then -- told to come back, and not yet given up on
      others = others + 1
      if not least or s < least then least, leastProc = s, turns[i] end
      if not nextDue or d < nextDue then nextDue = d end
    end
  end
end
local slots = conc > 0 and math.floor(conc / 4) or 64
if iv > 0 then
  -- Permits that wait for their slot hold places: no more than a quarter of them.
  if conc > 0 then horizon = math.min(horizon, iv * math.max(1, slots)) end
  slots = math.floor(horizon / iv)
end
local quantum = math.max(1, math.floor(slots / (others + 1)))
if not mineKnown and most > 0 then served = math.max(served, most - quantum) end

-- Arrivals.
local out = {}
local function say(a, b, c) out[#out + 1] = a; out[#out + 1] = b; out[#out + 1] = c end
local inflight = 0
if conc > 0 and (narr > 0 or freed > 0) then inflight = call('ZCARD', KEYS[2]) end
local granted, denied, comeBack = 0, 0, 0
local stop, stopIn = nil, 0
if narr > 0 then
  local jobs, permit, newjobs = {}, {}, {}
  for i = 1, narr do
    local job = ARGV[arrAt[i] + 1]
    if job ~= '' then jobs[#jobs + 1] = job end
  end
  local leaseNow = int(now + lease)
  local holder, crashed = {}, {}
  if #jobs > 0 then
    local h = call('HMGET', KEYS[3], unpack(jobs))
    local c = crashes > 0 and call('HMGET', KEYS[4], unpack(jobs)) or {}
    for i, job in ipairs(jobs) do holder[job] = h[i]; crashed[job] = num(c[i]) end
  end
  for i = 1, narr do
    local a = arrAt[i]
    local id, job, cost, account, charge = ARGV[a], ARGV[a + 1], 1, '', 0
    if ARGV[a + 2] == '*' then cost, account, charge = num(ARGV[a + 3]), ARGV[a + 4], num(ARGV[a + 5]) end
    local record = hasRecord[i] and kept[hasRecord[i]]
    local other = job ~= '' and holder[job]
    if other and other ~= id then
      local score = call('ZSCORE', KEYS[2], other)
      if not score then other = false
      elseif num(score) <= now then
        expire(other); inflight = inflight - 1; crashed[job] = (crashed[job] or 0) + 1; other = false
      end
    end
    if record then say('x', 'done', cjson.encode({record}))
    elseif other and other ~= id then say('x', 'running', '')
    elseif job ~= '' and (crashed[job] or 0) >= 3 then say('x', 'poison', '')
    else
      local slot = now
      if not stop then
        if shut ~= '' then stop, stopIn = shut, shutUntil > 0 and shutUntil - now or 0
        elseif cautious ~= '' and probe ~= '' then stop, stopIn = 'probing', 0
        elseif conc > 0 and inflight >= conc then stop, stopIn = 'concurrency', 0
        else
          if iv > 0 then slot = math.max(now, tat - (burst - 1) * iv) end
          if slot - now > horizon then
            stop, stopIn = 'rate', math.max(1, slot - now - math.floor(horizon / 2))
          elseif others > 0 and served - least >= quantum then
            -- After the others had theirs; yet before the slot, should they not come.
            stop, stopIn = 'turn', 5000
            if iv > 0 then
              local mine = math.min(slot - 2000, slot + quantum * iv - math.floor(horizon / 2))
              stopIn = math.max(1000, nextDue + 20000 - now, mine - now)
            end
          end
        end
      end
      if not stop and account ~= '' then
        local have = num(call('HGET', KEYS[12], account))
        if have < charge then say('x', 'account', int(have)); slot = nil
        else call('HINCRBY', KEYS[12], account, int(-charge)) end
      end
      if slot == nil then -- refused above, for this job alone
      elseif stop then
        denied = denied + 1
        say('n', int(stopIn), stop)
      else
        permit[#permit + 1] = slot == now and leaseNow or int(slot + lease); permit[#permit + 1] = id
        if job ~= '' then newjobs[#newjobs + 1] = job; newjobs[#newjobs + 1] = id; holder[job] = id end
        inflight, granted, served = inflight + 1, granted + 1, served + cost
        if cautious ~= '' then probe = id end
        if iv > 0 then
          tat = math.max(slot, tat) + cost * iv
          say('g', int(slot - now), int(tat))
        else
          say('g', '0', '0')
        end
      end
    end
  end
  if #permit > 0 then call('ZADD', KEYS[2], unpack(permit)) end
  if #newjobs > 0 then call('HSET', KEYS[3], unpack(newjobs)) end
end

-- Write down what changed.
put('seq', int(seq)); put('last', int(now)); put('tat', int(tat)); put('iv', int(iv))
if crashes ~= num(g.crashes) then put('crashes', int(crashes)) end
if nref ~= num(g.nref) then put('nref', int(nref)) end
if cautious ~= (g.cautious or '') then put('cautious', cautious) end
if probe ~= (g.probe or '') then put('probe', probe) end
call('HSET', KEYS[1], unpack(set))
if (sharing and narr > 0) or touch then
  local due = 0
  if waitingHere > granted and shut == '' then
    if not stop then due = now + 5000 elseif stopIn > 0 then due = now + stopIn else due = now + 100000 end
  end
  call('HSET', KEYS[9], proc, int(served) .. ' ' .. int(due) .. ' ' .. int(now))
end
if wakeall then call('PUBLISH', ARGV[8], '*')
elseif others > 0 and shut == '' and conc > 0 and inflight < conc
  and ((freed > 0 and inflight + freed >= conc) or (stop == 'turn' and iv == 0)) then
  call('PUBLISH', ARGV[8], leastProc)
end

local answer = {int(now), int(seq), int(iv), int(conc), int(inflight), g.v, g.n, g.per, g.headroom, g.burst, shut,
  int(shutUntil), look and int(nproc) or '0', int(rollback), int(#lost)}
for _, id in ipairs(lost) do answer[#answer + 1] = id end
for _, v in ipairs(out) do answer[#answer + 1] = v end
local text = table.concat(answer, '\n')
if granted > 0 or nset > 0 then call('SET', KEYS[10], reqno .. ' ' .. text, 'PX', '60000') end
return {int(now), text}
