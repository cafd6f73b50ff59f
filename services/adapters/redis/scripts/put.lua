-- Compare (epoch, sequence), set, count the version and append the change, in one atomic step.
-- ARGV[2] index of the kind's hash in KEYS, [3] kind, [4] key, [5] epoch, [6] sequence, [7] payload,
-- [8] live ('1' or '0'), [9] most changes kept. Returns 1 when set, 0 when not newer.
-- Numbers are compared as canonical decimals: Lua's doubles are exact only up to 2^53.
local function greater(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end
local entries = KEYS[tonumber(ARGV[2])]
local stored = redis.call('HGET', entries, ARGV[4])
if stored then
  local epoch, sequence = string.match(stored, '^(%d+) (%d+)\n')
  if epoch and not greater(ARGV[5], epoch)
      and not (ARGV[5] == epoch and greater(ARGV[6], sequence)) then
    return 0
  end
end
redis.call('HSET', entries, ARGV[4], ARGV[5] .. ' ' .. ARGV[6] .. '\n' .. ARGV[7])
local version = redis.call('HINCRBY', meta, 'version', 1)
redis.call('XADD', changes, 'MAXLEN', '=', ARGV[9], version .. '-0',
  'kind', ARGV[3], 'key', ARGV[4], 'live', ARGV[8], 'bytes', ARGV[7])
return 1
