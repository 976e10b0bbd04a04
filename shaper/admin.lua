#!lua flags=allow-oom
-- Pause or resume a gate. It must work when Redis is full: a resume is what
-- lets workers drain, a pause what an operator reaches for then.
-- A resume also has an open breaker probe at once: one call at a time, and it
-- closes only if they succeed.
-- KEYS: 1 paused   2 gate (hash)   3 held_until   4 refused   5 health (hash)   6 control   (all under one hash tag)
-- ARGV: 1 "pause" or "resume"   2 the channel that wakes waiters
-- Result: 1
if ARGV[1] == 'pause' then
  redis.call('SETNX', KEYS[1], redis.call('TIME')[1])
else
  redis.call('DEL', KEYS[1], KEYS[3], KEYS[4])
  redis.call('HSET', KEYS[2], 'cautious', '', 'probe', '', 'nref', 0)
  if string.match(redis.call('GET', KEYS[6]) or '', '^1 on %d+ open ') then redis.call('HSET', KEYS[5], 'resumed', '1') end
  redis.call('PUBLISH', ARGV[2], '*')
end
return 1
