-- limiter: one decision about limits at our own door. This is the head of the
-- script; the algorithms follow (limiter_<name>.lua), then limiter_main.lua.
--
-- Purpose  Decide several limits in one step: units are taken from all of them,
--          or, where one that is not a shadow has no room, from none.
-- Units    Times are whole microseconds of Redis TIME. A bucket counts in
--          1/period of a unit, so that no decision is rounded. All numbers stay
--          below 2^52 and are written with %d.
-- Slot     All keys share the hash tag of their store.
--
-- KEYS  one key for each ask
-- ARGV  1 now, or 0 for TIME (tests give a time of their own)
--       then 11 for each ask: algorithm, n, per, burst, lease, cost, at least, back, back at, place, shadow 0/1
-- RESULT  {now, then 5 for each ask: allowed 0/1, taken, left, wait or -1 for never, reset}
--
-- An algorithm is a function (key, now, p) that reads its state and returns
--   avail    units that could be taken now
--   wait(c)  time until c units could be taken, -1 for never
--   take(c)  writes the state with c units taken
--   left()   units available after take
--   reset()  how long no more than left() can be counted on; where nothing is
--            left, the end of the script answers wait(1) instead
--   dirty    the state must be written even if nothing is taken
-- A clock that steps back moves the state with it, once: nothing is stalled,
-- nothing is given twice.

local call = redis.call
local algo = {}

local function num(x) return tonumber(x or 0) or 0 end
local function int(x) return string.format('%d', x) end

-- div is floor(a / b) for whole a >= 0, b > 0, exact where a/b is rounded.
local function div(a, b)
  local q = math.floor(a / b)
  if q * b > a then q = q - 1 elseif (q + 1) * b <= a then q = q + 1 end
  return q
end
local function ceil(a, b) return div(a + b - 1, b) end

-- read returns the numbers of a state "a:b:c", or nil.
local function read(key)
  local s = call('GET', key)
  if not s then return nil end
  local t = {}
  for w in string.gmatch(s, '[^:]+') do t[#t + 1] = num(w) end
  return t
end

-- write stores a state for as long as it says anything, us microseconds, and
-- two seconds more, so that a small step back of the clock finds it.
local function write(key, us, ...)
  local t = {...}
  for i, v in ipairs(t) do t[i] = int(v) end
  call('SET', key, table.concat(t, ':'), 'PX', int(math.ceil(us / 1000) + 2000))
end

-- drained is level after dt at n a microsecond, without multiplying beyond it.
local function drained(level, dt, n)
  if dt >= ceil(level, n) then return 0 end
  return level - dt * n
end
