-- Stand in line behind whoever has the lock for itself; nothing if the claim does so already.
-- A successor is answered behind whom it stands.
local function stand(holder, ends, about)
  local behind = call('ZRANGE', order, -1, -1, 'WITHSCORES')
  local before, fence, its = behind[1] or holder, '0', '1'
  if behind[1] then its, about = string.match(call('HGET', waiters, before) or '', '^%d+ %d+ %d+ (%d+) (.*)$') end
  if units == capacity and about and its ~= '0' then fence = next_fence(found[3]) end
  local record = stop .. ' ' .. units .. ' ' .. capacity .. ' ' .. fence .. ' ' .. now .. ' ' .. channel .. ' ' .. who
  if call('HSETNX', waiters, id, record) == 0 then return end
  local kept, quick = tonumber(found[4]), tonumber(found[5])
  call('ZADD', order, (tonumber(behind[2]) or 0) + 1, id)
  if kept < stop + KEEP then
    keep(stop)
  elseif not behind[1] then
    call('PEXPIREAT', order, kept)
    call('PEXPIREAT', waiters, kept)
  end
  if not quick or ttl < quick then
    quick = ttl
    call('HSET', line, 'quick', quick)
  end
  local answer = -10 - recheck_after(ends, not behind[1], quick)
  if fence == '0' then return answer end
  call('HSET', line, 'fence', fence, 'mark', now)
  return {answer, before, tonumber(fence)}
end

-- Somebody has it for itself, and its lease is good: most of the time otherwise.
if found[1] then
  local holder, last, u, c, fence, rest = string.match(found[1], '^(%S+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  local ends = tonumber(last)
  if ends > now and holder == id then  -- the holder itself asks again: its lease goes on, its fence stays
    call('HSET', line, 'sole', renewed(id .. ' ', ends, stop, u, c, fence, rest), 'mark', now)
    if tonumber(found[4]) < stop + KEEP then keep(stop) end
    return tonumber(fence)
  elseif ends > now and u == c then
    if mode == 't' or mode == 'o' then return 0 end
    local answer = mode == 'w' and stand(holder, ends, rest)
    if answer then return answer end
    if extend(id, stop) then
      if tonumber(found[4]) < stop + KEEP then keep(stop) end
      return -10 - recheck_after(ends, call('ZRANK', order, id) == 0, tonumber(found[5]))
    end
    call('ZREM', order, id)  -- what has expired is never revived
    call('HDEL', waiters, id)
    if mode == 'a' then return -1 end
    return stand(holder, ends, rest)
  end
end
units, capacity = tonumber(units), tonumber(capacity)
