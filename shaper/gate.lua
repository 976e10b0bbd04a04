#!lua flags=allow-oom
-- gate.lua: one request of one process to the gate of one provider.
--
-- Purpose  In this order: settle finished permits, renew leases, expire dead
--          ones, then decide for each arrival, all limits together, and commit
--          only what is granted. A request is idempotent: its answer is kept
--          under reply:<process> and given again to a repetition.
-- Control  Health's record (see control.go) is obeyed in the same request: open
--          shuts; half-open gives one permit at a time to the whole fleet, as a
--          lease; closed may lengthen the interval. Only its first line is read.
-- Account  Retries pay and first attempts that succeed earn; a retry needs a
--          token only while first attempts wait or the provider recovers.
-- Units    Times are whole microseconds of Redis TIME. The account counts
--          thousandths of a token. Integers are written with %d: tostring()
--          loses digits of them.
-- Slot     All keys share the hash tag {queue}.
-- allow-oom: settling frees places and must work when Redis is full.
--
-- KEYS  1 gate (hash)        2 permits (zset id -> lease end)   3 running (hash job -> permit)
--       4 crash (hash job -> n)   5 expired (zset permit -> when)  6 control  7 held_until  8 paused
--       9 turns (hash process -> "served due seen")  10 reply:<process>  11 refused (set of jobs: credentials)
-- ARGV  1 protocol  2 process  3 request number  4 sequence last seen  5 lease  6 horizon
--       7 key prefix  8 wake channel  9 waiting in this process  10 sign of life 0/1 (once a second)
--       11 n  12 per  13 headroom  14 burst  15 concurrency  16 interval  17 file fingerprint (11-17, 21: used if lost)
--       18 settlements  19 renewals  20 arrivals  21 limits version known
--       22 account: "earn spend trickle cap contended longest", '' for none; then
--       settlement: permit, job, code and what the code says:
--         k  called, ok: nothing more       o  the same with a record: value, ttl ms, index
--         K, O  the same, and it earns
--         *  kind (c called, r not called), outcome, tat given back or 0, hold µs, refused 0/1, capped 0/1,
--            account 0/1 (earns; for r: the charge goes back), record name, value, ttl ms, index, member, cost
--       renewal:    permit, job
--       arrival:    permit, job, code and what the code says:
--         1  cost 1   r  the same, refused where the record id:<job> stands   R  the same, and it pays
--         *  cost, pays 0/1, record name
--       An index is a sorted set below the prefix that gets the member (o: the job) at the time in ms.
-- RESULT  {now, answer}; answer is lines of text:
--       now, seq, interval and concurrency in force, in flight (0 where it is not limited), limits version, n, per,
--       headroom, burst, concurrency, generation, phase ('' without control), probing 0/1 (a permit of this answer is a
--       probe), shut reason, shut until, processes (0: not counted this time), rollback 0/1, lost permits, its ids…,
--       then for each arrival three:
--       g, delay, tat | n, ask again in, reason | x, reason, what there is to say (JSON; account: ask again in)

local call = redis.call
local function int(x) return string.format('%d', x) end
local function num(x) return tonumber(x or 0) or 0 end

local proc, reqno, lease, horizon, prefix = ARGV[2], ARGV[3], num(ARGV[5]), num(ARGV[6]), ARGV[7]
local nset, nren, narr = num(ARGV[18]), num(ARGV[19]), num(ARGV[20])

local t = call('TIME')
local now = num(t[1]) * 1000000 + num(t[2])

-- Where everything stands in ARGV: settlements first, then renewals, then arrivals.
local at = 23
local setAt, arrAt = {}, {}
local SET_MORE, ARR_MORE = {k = 0, K = 0, o = 3, O = 3, ['*'] = 13}, {['1'] = 0, r = 0, R = 0, ['*'] = 3}
for i = 1, nset do setAt[i] = at; at = at + 3 + SET_MORE[ARGV[at + 2]] end
local AT_REN = at
at = at + nren * 2
local mkeys = {KEYS[10], KEYS[6], KEYS[7], KEYS[8]}
local hasRecord, recordName = {}, {}
for i = 1, narr do
  arrAt[i] = at
  local code = ARGV[at + 2]
  local name = ''
  if code == '*' then name = ARGV[at + 5] elseif code ~= '1' then name = 'id:' .. ARGV[at + 1] end
  if name ~= '' then mkeys[#mkeys + 1] = prefix .. name; hasRecord[i], recordName[i] = #mkeys, name end
  at = at + 3 + ARR_MORE[code]
end
local kept = call('MGET', unpack(mkeys))
if kept[1] then
  local sep = string.find(kept[1], ' ', 1, true)
  if string.sub(kept[1], 1, sep - 1) == reqno then return {int(now), string.sub(kept[1], sep + 1)} end
end
local held, paused = num(kept[3]), kept[4]

-- What health decided. A record that is only watched (shadow, off) says the
-- generation and nothing else.
local phase, gen, since, civ, cconc, openUntil, probeLease, probeApart, slow = '', 0, 0, 0, 0, 0, 0, 0, false
if kept[2] then
  local mode, p, gn, si, i, l, u, pl, pa, sl = string.match(kept[2],
    '^1 (%a+) %d+ ([%a_]+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d)')
  if mode then gen = num(gn) end
  if mode == 'on' then
    phase, since, civ, cconc, openUntil = p, num(si), num(i), num(l), num(u)
    probeLease, probeApart, slow = num(pl), num(pa), sl == '1'
  end
end
local half = phase == 'half_open'

local F = {'seq', 'last', 'tat', 'iv', 'learn', 'quiet', 'xat', 'crashes', 'v', 'n', 'per', 'headroom', 'burst', 'conc',
  'liv', 'cautious', 'probe', 'reason', 'nref', 'puntil', 'psince', 'pnext', 'fref', 'acct'}
local got = call('HMGET', KEYS[1], unpack(F))
local g = {}
for i, f in ipairs(F) do g[f] = got[i] end
local tat, iv, last = num(g.tat), num(g.iv), num(g.last)
local puntil, psince, pnext, fref = num(g.puntil), num(g.psince), num(g.pnext), num(g.fref)
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
  if puntil > 0 then puntil = puntil - by end
  if pnext > 0 then pnext = pnext - by end
  if fref > 0 then fref = fref - by end
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

-- Interval and concurrency in force. What is owed keeps its number of calls,
-- not its time. An open breaker leaves the line as it is.
local niv = num(g.liv)
if learning then niv = niv * 2; burst = 1 end
if phase == 'open' then niv = iv
elseif half then burst = 1
elseif civ > niv then niv, burst = civ, 1 end
local lconc = conc
if cconc > 0 and (conc == 0 or cconc < conc) then conc = cconc end
if niv ~= iv then
  if iv > 0 and tat > now then tat = now + math.floor((tat - now) / iv * niv) end
  iv = niv
end

-- The account, as in retrybudget.Budget: "tokens at window earned before line".
local ac = nil
local function account()
  if not ac then
    local e, s, t, c, co, lo = string.match(ARGV[22], '(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)')
    ac = {earn = num(e), spend = num(s), trickle = num(t), cap = num(c), contended = num(co), longest = num(lo)}
    local tk, at, w, ea, be, li = string.match(g.acct or '', '(%d+) (%d+) (%-?%d+) (%d+) (%d+) (%-?%d+)')
    if tk then
      ac.tokens, ac.at, ac.window, ac.earned, ac.before, ac.line = num(tk), num(at), num(w), num(ea), num(be), num(li)
    else -- a new one is full
      ac.tokens, ac.at, ac.window, ac.earned, ac.before, ac.line = ac.cap, now, now, 0, 0, now
    end
  end
  if now < ac.at then -- a clock that was set back mints nothing
    local by = ac.at - now
    ac.at, ac.window, ac.line = now, ac.window - by, ac.line - by
  end
  local full = math.floor(ac.cap * 1000000 / ac.trickle) + 1000000
  local whole = math.floor(math.min(now - ac.at, full) * ac.trickle / 1000000)
  ac.tokens = ac.tokens + whole
  ac.at = ac.at + math.floor(whole * 1000000 / ac.trickle)
  if ac.tokens >= ac.cap then ac.tokens, ac.at = ac.cap, now end
  local gone = now - ac.window
  if gone >= 20000000 then ac.window, ac.before, ac.earned = now, 0, 0
  elseif gone >= 10000000 then ac.window, ac.before, ac.earned = ac.window + 10000000, ac.earned, 0 end
  ac.line = math.min(math.max(ac.line, now), now + ac.longest)
  return ac
end
local function earn()
  if ARGV[22] == '' then return end
  local a = account()
  a.earned = a.earned + a.earn
  a.tokens = math.min(a.cap, a.tokens + a.earn)
end
local function payBack()
  if ARGV[22] == '' then return end
  local a = account()
  a.tokens = math.min(a.cap, a.tokens + a.spend)
end
-- nil where the retry may go and has paid; else when it may ask again.
local function charge(probing, recovering)
  local a = account()
  local needed = not probing and (recovering or (fref > 0 and math.max(0, now - fref) < a.contended))
  if a.tokens >= a.spend or not needed then
    a.tokens = a.tokens - math.min(a.tokens, a.spend)
    return nil
  end
  local missing = a.spend
  if a.line <= now then missing = missing - a.tokens end
  local into = math.min(10000000, math.max(0, now - a.window))
  local weighted = math.floor(a.before * (10000000 - into) / 10000000) + a.earned
  local income = math.max(1, a.trickle + math.floor(weighted * 1000000 / 10000000))
  a.line = a.line + math.floor(missing * 1000000 / income)
  local after = math.min(a.line - now, a.longest)
  a.line = math.min(a.line, now + a.longest)
  return after
end

-- Settlements.
local freed, wakeall, probed = 0, false, false
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
local written = {}          -- records of this very request: they were read before it wrote them
local function record(name, value, ttl, ix, member)
  -- The first end of a job stands: who was stopped for long comes too late.
  if not call('SET', prefix .. name, value, 'PX', ttl, 'NX') then return end
  written[name] = value
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
  local id, job, code, failed = ids[i], ARGV[a + 1], ARGV[a + 2], false
  if code == '*' then
    failed = ARGV[a + 3] == 'c' and ARGV[a + 4] == 'failed'
    local called, outcome, back = ARGV[a + 3] == 'c', ARGV[a + 4], num(ARGV[a + 5])
    if not called and live[i] ~= false and back > 0 and tat == back and iv > 0 then
      tat = tat - iv * num(ARGV[a + 15])     -- the newest slot, not used: the line goes back
    end
    if live[i] ~= false and ARGV[a + 9] == '1' then
      if called then earn() else payBack() end
    end
    local us = num(ARGV[a + 6])
    if us > 0 and now + us > held then
      hold(us, 'retry_after')
      if ARGV[a + 8] == '1' then cautious = 'retry_after' end
    end
    credentials(id, job, called, outcome, ARGV[a + 7] == '1')
    if ARGV[a + 10] ~= '' then record(ARGV[a + 10], ARGV[a + 11], ARGV[a + 12], ARGV[a + 13], ARGV[a + 14]) end
  else
    if (code == 'K' or code == 'O') and live[i] ~= false then earn() end
    if nref > 0 or cautious ~= '' then credentials(id, job, true, 'ok', false) end
    if code == 'o' or code == 'O' then record('id:' .. job, ARGV[a + 3], ARGV[a + 4], ARGV[a + 5], job) end
  end
  if probe == id then
    probe, puntil, probed = '', 0, true
    -- After a bad probe health has its time to say so.
    if failed and half and psince == since then pnext = math.max(pnext, now + 1000000) end
  end
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
      if free and (learning or lconc == 0 or inflight < lconc) then
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
  if probe == id and half and psince == since then
    puntil = now -- a lost probe: the law counts it as failed
  elseif probe == id then
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
elseif phase == 'open' then shut, shutUntil = 'open', openUntil
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
local granted = 0
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
    local id, job, cost, code = ARGV[a], ARGV[a + 1], 1, ARGV[a + 2]
    local pays = code == 'R'
    if code == '*' then cost, pays = num(ARGV[a + 3]), ARGV[a + 4] == '1' end
    pays = pays and ARGV[22] ~= ''
    local record = hasRecord[i] and (kept[hasRecord[i]] or written[recordName[i]])
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
        if shut ~= '' then stop, stopIn = shut, math.max(0, shutUntil - now)
        elseif probe ~= '' and (cautious ~= '' or (half and psince == since)) then stop, stopIn = 'probing', 0
        elseif half and pnext > now then stop, stopIn = 'probing', pnext - now
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
      local later = nil
      if not stop and pays then later = charge(half or cautious ~= '', half or slow) end
      if later then say('x', 'account', int(later))
      elseif stop then
        if not pays and (stop == 'rate' or stop == 'concurrency' or stop == 'turn') then fref = now end
        say('n', int(stopIn), stop)
      else
        permit[#permit + 1] = slot == now and leaseNow or int(slot + lease); permit[#permit + 1] = id
        if job ~= '' then newjobs[#newjobs + 1] = job; newjobs[#newjobs + 1] = id; holder[job] = id end
        inflight, granted, served = inflight + 1, granted + 1, served + cost
        if half or cautious ~= '' then probe = id end
        if half then psince, puntil, pnext = since, slot + probeLease, slot + probeApart end
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
if puntil ~= num(g.puntil) then put('puntil', int(puntil)) end
if psince ~= num(g.psince) then put('psince', int(psince)) end
if pnext ~= num(g.pnext) then put('pnext', int(pnext)) end
if fref ~= num(g.fref) then put('fref', int(fref)) end
if ac then
  put('acct', int(ac.tokens) .. ' ' .. int(ac.at) .. ' ' .. int(ac.window) .. ' ' .. int(ac.earned) .. ' ' .. int(ac.before) ..
    ' ' .. int(ac.line))
end
call('HSET', KEYS[1], unpack(set))
if (sharing and narr > 0) or touch then
  local due = 0
  if waitingHere > granted and shut == '' then
    if not stop then due = now + 5000 elseif stopIn > 0 then due = now + stopIn else due = now + 100000 end
  end
  call('HSET', KEYS[9], proc, int(served) .. ' ' .. int(due) .. ' ' .. int(now))
end
if wakeall then call('PUBLISH', ARGV[8], '*')
elseif others > 0 and shut == '' and ((probed and granted == 0 and half) or (conc > 0 and inflight < conc
  and ((freed > 0 and inflight + freed >= conc) or (stop == 'turn' and iv == 0)))) then
  call('PUBLISH', ARGV[8], leastProc)
end

local answer = {int(now), int(seq), int(iv), int(conc), int(inflight), g.v, g.n, g.per, g.headroom, g.burst, g.conc, int(gen),
  phase, (half or cautious ~= '') and '1' or '0', shut, int(shutUntil), look and int(nproc) or '0', int(rollback), int(#lost)}
for _, id in ipairs(lost) do answer[#answer + 1] = id end
for _, v in ipairs(out) do answer[#answer + 1] = v end
local text = table.concat(answer, '\n')
if granted > 0 or nset > 0 then call('SET', KEYS[10], reqno .. ' ' .. text, 'PX', '60000') end
return {int(now), text}
