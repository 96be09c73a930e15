local ttl, units, capacity = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local channel, mode, who, id = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local stop = now + 1 + ttl
local found = call('HMGET', line, 'sole', 'units', 'fence', 'kept', 'quick', 'mark')
if set_right(found[3], found[6]) then
  found = call('HMGET', line, 'sole', 'units', 'fence', 'kept', 'quick', 'mark')
end

if not found[3] then
  if call('EXISTS', line) == 1 then return redis.error_reply('WRONGTYPE a hash that is no line of a lock') end
  if mode == 'a' then return -1 end  -- no line at all: nothing is written for a waiter that is gone
end

-- Nobody holds it and nobody waits: most of the time.
if not found[1] and not found[2] and mode ~= 'a' then
  local fence = next_fence(found[3])
  call('HSET', line, 'fence', fence, 'sole',
    id .. ' ' .. stop .. ' ' .. units .. ' ' .. capacity .. ' ' .. fence .. ' ' .. now .. ' ' .. channel .. ' ' .. who)
  if found[6] then call('HSET', line, 'mark', now) end
  if not found[4] or tonumber(found[4]) < stop + KEEP then keep(stop) end
  return tonumber(fence)
end
