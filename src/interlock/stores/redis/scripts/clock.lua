local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)
local function kept_until(stop)  -- so far ahead that most steps need not set it again
  local kept = stop + 2 * KEEP
  redis.call('HSET', line, 'kept', kept)
  redis.call('PEXPIREAT', line, kept)
  return kept
end
