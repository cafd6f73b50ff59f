-- Shared opening of every writing script: names the keys and gives an empty store its incarnation.
-- KEYS: meta, change stream, then one hash per kind. ARGV[1]: a fresh random incarnation, used only
-- if the store has none. A store whose meta is gone (flushed, evicted) is a new store: what else is
-- left of it has no version and is dropped, so that stream ids start again at 1.
local meta, changes = KEYS[1], KEYS[2]
if redis.call('HSETNX', meta, 'incarnation', ARGV[1]) == 1 then
  redis.call('DEL', changes, unpack(KEYS, 3))
end
