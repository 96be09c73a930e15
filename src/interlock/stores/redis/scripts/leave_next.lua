-- The only holder leaves, and the first waiter wants it for itself: most of the time otherwise.
local ends = mine_alone and tonumber(string.match(sole, '^%S+ (%d+) '))
while ends and ends > now do
  local first = call('ZPOPMIN', order)
  local head, place = first[1], first[2]
  if not head then
    call('HDEL', line, 'sole', 'quick')
    return 1
  end
  local record = call('HGET', waiters, head)
  local stop, u, c, rest, told
  if record then stop, u, c, rest, told = string.match(record, '^(%d+) (%d+) (%d+) %d+ (%d+ (%S*) .*)$') end
  local alive = stop and tonumber(stop) > now
  if alive and u ~= c then  -- others may hold it too
    call('ZADD', order, place, head)
    break
  end
  call('HDEL', waiters, head)
  if alive then
    local fence = next_fence(found[3])
    call('HSET', line, 'fence', fence, 'sole',
      head .. ' ' .. stop .. ' ' .. u .. ' ' .. c .. ' ' .. fence .. ' ' .. rest)
    if told == channel then return {1, head, tonumber(fence)} end
    call('PUBLISH', told, head .. ' ' .. fence)
    return 1
  end
end
