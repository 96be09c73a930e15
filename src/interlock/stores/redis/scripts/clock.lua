local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)

-- Let the keys live beyond `stop`; so far beyond that most steps need not do it again.
local function keep(stop)
  local kept = stop + 2 * KEEP
  redis.call('HSET', line, 'kept', kept)
  redis.call('PEXPIREAT', line, kept)
  redis.call('PEXPIREAT', order, kept)
  redis.call('PEXPIREAT', waiters, kept)
  return kept
end
