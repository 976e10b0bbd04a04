#!lua flags=allow-oom
-- limits.lua: writes the limits of one provider.
--
-- Purpose  "file": a process writes its file's values only where they differ
--          from the file's values last written: a restart keeps a live change,
--          an edit of the file beats it. "live": always. Each change is a new
--          version. A changed tag (of the credentials) releases their hold.
-- Slot     All keys share the hash tag {queue}.
-- KEYS     1 gate (hash)  2 held_until  3 refused (set)
-- ARGV     1 mode  2 n  3 per µs  4 headroom µs  5 burst  6 concurrency  7 interval µs  8 fingerprint  9 tag  10 wake channel
-- RESULT   {version, n, per, headroom, burst, concurrency} in force, as strings

local call = redis.call
local got = call('HMGET', KEYS[1], 'v', 'file', 'tag', 'reason', 'cautious')
local v, file, tag = tonumber(got[1] or 0), got[2], got[3]
local write = ARGV[1] == 'live' or not got[1] or file ~= ARGV[8]
if write then
  call('HSET', KEYS[1], 'v', string.format('%d', v + 1), 'n', ARGV[2], 'per', ARGV[3], 'headroom', ARGV[4],
    'burst', ARGV[5], 'conc', ARGV[6], 'liv', ARGV[7])
  if ARGV[1] == 'file' then call('HSET', KEYS[1], 'file', ARGV[8]) end
end
if ARGV[1] == 'file' and tag ~= ARGV[9] then
  call('HSET', KEYS[1], 'tag', ARGV[9])
  if tag and got[5] == 'credentials' then
    call('HSET', KEYS[1], 'cautious', '', 'probe', '', 'nref', 0)
    call('DEL', KEYS[3])
    if got[4] == 'credentials' then call('DEL', KEYS[2]) end
    write = true
  end
end
if write then call('PUBLISH', ARGV[10], '*') end
return call('HMGET', KEYS[1], 'v', 'n', 'per', 'headroom', 'burst', 'conc')
