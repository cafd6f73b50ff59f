-- Read the meta, the run id and whole hashes as they are at one moment.
-- KEYS[1] meta, then any hashes. A script rather than MULTI, because a full server refuses to queue
-- even reads. Returns {run id, meta as a flat list, each hash as a flat list}.
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local reply = {run_id}
for index = 1, #KEYS do
  reply[index + 1] = redis.call('HGETALL', KEYS[index])
end
return reply
