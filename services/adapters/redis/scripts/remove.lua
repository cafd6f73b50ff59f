-- Remove an entry, count the version and append the removal (an entry without bytes).
-- ARGV[2] index of the kind's hash in KEYS, [3] kind, [4] key, [5] most changes kept.
-- Returns 1 when there was something to remove.
if redis.call('HDEL', KEYS[tonumber(ARGV[2])], ARGV[4]) == 0 then
  return 0
end
local version = redis.call('HINCRBY', meta, 'version', 1)
redis.call('XADD', changes, 'MAXLEN', '=', ARGV[5], version .. '-0',
  'kind', ARGV[3], 'key', ARGV[4], 'live', '1')
return 1
