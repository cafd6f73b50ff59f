-- Mark the store as filled, for one incarnation and one run of the server: a mark of an earlier run
-- does not count, whoever leaves it, because readers compare it with the run they meet.
-- KEYS[1] meta. ARGV[1] incarnation, [2] run id. Returns 1 when it still is that incarnation.
if redis.call('HGET', KEYS[1], 'incarnation') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'ready', ARGV[2])
return 1
