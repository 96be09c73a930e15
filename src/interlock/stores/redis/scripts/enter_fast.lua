local ttl, units, capacity = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local channel, id, mode, who = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local found = redis.call('HMGET', line, 'sole', 'units', 'fence')

-- Nobody holds it and nobody waits: most of the time.
if not found[1] and not found[2] and mode ~= 'a' then
  local fence = string.format('%.0f', math.max((tonumber(found[3]) or 0) + 1, micros))
  local stop = now + 1 + ttl
  redis.call('HSET', line, 'fence', fence, 'sole',
    id .. ' ' .. stop .. ' ' .. units .. ' ' .. capacity .. ' ' .. fence .. ' ' .. channel .. ' ' .. who)
  redis.call('PEXPIRE', line, ttl + KEEP)
  return tonumber(fence)
end
units, capacity = tonumber(units), tonumber(capacity)
