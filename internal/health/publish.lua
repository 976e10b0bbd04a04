#!lua flags=allow-oom
-- publish.lua: writes the control record, if nobody else has meanwhile.
--
-- Purpose  Compare-and-set on the record's version; and the buckets that the law
--          does not look at any more go into the seconds, which people look at.
-- Slot     All keys share the hash tag {queue}.
--
-- KEYS  1 control  2 buckets (hash)  3 seconds (list, newest first)
-- ARGV  1 version that the caller read, '' where there was no record  2 the record  3 channel that wakes waiters, '' for
--       nobody  4 most seconds that are kept  5 for how long, ms  6 seconds, then each, and then the fields of the buckets
--       that they are made of. A second is "<unix second> <counts>", with counts as sense.lua has them.
-- RESULT  1 written, 0 another was first

local call = redis.call
local have = call('GET', KEYS[1])
local version = have and (string.match(have, '^%d+ %a+ (%d+)') or '') or ''
if version ~= ARGV[1] then return 0 end
call('SET', KEYS[1], ARGV[2])
local last = 6 + tonumber(ARGV[6])
if last > 6 then
  call('LPUSH', KEYS[3], unpack(ARGV, 7, last))
  call('LTRIM', KEYS[3], 0, tonumber(ARGV[4]) - 1)
  call('PEXPIRE', KEYS[3], ARGV[5])
end
if #ARGV > last then call('HDEL', KEYS[2], unpack(ARGV, last + 1)) end
if ARGV[3] ~= '' then call('PUBLISH', ARGV[3], '*') end
return 1
