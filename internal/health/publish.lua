#!lua flags=allow-oom
-- publish.lua: writes the control record, if nobody else has meanwhile.
--
-- Purpose  Compare-and-set on the record's version, and forget the buckets that
--          the law does not look at any more.
-- Slot     All keys share the hash tag {queue}.
--
-- KEYS  1 control  2 buckets (hash)
-- ARGV  1 version that the caller read, '' where there was no record  2 the record  3 channel that wakes waiters, '' for
--       nobody  4… fields of buckets to forget
-- RESULT  1 written, 0 another was first

local call = redis.call
local have = call('GET', KEYS[1])
local version = have and (string.match(have, '^%d+ %a+ (%d+)') or '') or ''
if version ~= ARGV[1] then return 0 end
call('SET', KEYS[1], ARGV[2])
if #ARGV > 3 then call('HDEL', KEYS[2], unpack(ARGV, 4)) end
if ARGV[3] ~= '' then call('PUBLISH', ARGV[3], '*') end
return 1
