-- The end of the limiter's script: reads the asks, decides, commits.
local WIDTH = 11
local now = num(ARGV[1])
if now == 0 then
  local t = call('TIME')
  now = num(t[1]) * 1000000 + num(t[2])
end

local asks, all = {}, true
for i, key in ipairs(KEYS) do
  local at = 1 + (i - 1) * WIDTH
  local a = function(k) return ARGV[at + k] end
  local p = {n = num(a(2)), per = num(a(3)), burst = num(a(4)), lease = num(a(5)),
    back = num(a(8)), backat = num(a(9)), place = a(10)}
  local s = algo[a(1)](key, now, p)
  s.cost, s.least, s.shadow, s.windowed = num(a(6)), num(a(7)), a(11) == '1', a(1) ~= 'concurrency'
  s.ok = s.avail >= s.least
  if not s.ok and not s.shadow then all = false end
  asks[i] = s
end

local out = {now}
for _, s in ipairs(asks) do
  local taken, wait = 0, 0
  if not s.ok then wait = s.wait(s.least) end
  if all and s.ok then
    taken = math.min(s.cost, s.avail)
    s.take(taken)
  elseif s.dirty then
    s.take(0)
  end
  out[#out + 1] = s.ok and 1 or 0
  out[#out + 1] = taken
  local left, reset = s.left(), s.reset()
  if left <= 0 and s.windowed then reset = s.wait(1) end
  out[#out + 1] = left
  out[#out + 1] = wait
  out[#out + 1] = reset
end
return out
