-- The only holder leaves, and the first waiter wants it for itself: most of the time otherwise.
if set_right(found[3], found[6]) then
  found = call('HMGET', line, 'sole', 'quick', 'fence', 'made', 'kept', 'mark')
  sole = found[1]
end
local holder, last, u, c
if sole then holder, last, u, c = string.match(sole, '^(%S+) (%d+) (%d+) (%d+) ') end
local ends = tonumber(last)

-- Make successors of the waiters behind `made`, else of the first ones: some in every step, until all are.  Behind one that
-- is none nobody could be one.
local function make_successors(made, fence)
  local last, from = fence, 0
  if made then
    local rank = call('ZRANK', order, made)
    local f = rank and string.match(call('HGET', waiters, made) or '', '^%d+ %d+ %d+ (%d+)')
    if not f or f == '0' then  -- it has gone
      call('HDEL', line, 'made')
      return
    end
    from = rank + 1
  end
  for _, id in ipairs(call('ZRANGE', order, from, from + SUCCESSORS - 1)) do
    local stop, u, c, f, rest = string.match(call('HGET', waiters, id) or '', '^(%d+) (%d+) (%d+) (%d+) (.*)$')
    if not stop or u ~= c or f ~= '0' then break end
    last, made = next_fence(last), id
    call('HSET', waiters, id, stop .. ' ' .. u .. ' ' .. c .. ' ' .. last .. ' ' .. rest)
  end
  if last ~= fence then
    call('HSET', line, 'fence', last, 'made', made, 'mark', now)
  elseif made then
    call('HDEL', line, 'made')
  end
end

while mine_alone and ends > now do
  local first = call('ZPOPMIN', order)
  local head, place = first[1], first[2]
  if not head then
    call('HDEL', line, 'sole', 'quick', 'made')
    idle(found[3], found[5])
    return 1
  end
  local record = call('HGET', waiters, head)
  local stop, u, c, f, rest, told
  if record then stop, u, c, f, rest, told = string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%d+ (%S*) .*)$') end
  local alive = stop and tonumber(stop) > now
  if alive and u ~= c then  -- others may hold it too
    call('ZADD', order, place, head)
    break
  end
  call('HDEL', waiters, head)
  if alive then
    local fence = f
    if f == '0' then fence = next_fence(found[3]) end
    local sole = head .. ' ' .. stop .. ' ' .. u .. ' ' .. c .. ' ' .. fence .. ' ' .. from_now(rest)
    if f == '0' then
      call('HSET', line, 'sole', sole, 'fence', fence, 'mark', now)
      make_successors(nil, fence)
    else
      call('HSET', line, 'sole', sole, 'mark', now)
      if found[4] then make_successors(found[4], found[3]) end
    end
    if let_in == head .. ' ' .. fence then return 1 end
    if told == channel then return {1, head, tonumber(fence)} end
    publish(told, head .. ' ' .. fence)
    return 1 + unheard
  end
end

-- A waiter leaves while somebody has it for itself: nobody's turn comes by that.
if sole and not mine_alone and u == c and ends > now then
  local record = call('HGET', waiters, id)
  if not record then return 0 end
  call('ZREM', order, id)
  call('HDEL', waiters, id)
  return tonumber(string.match(record, '^%d+')) > now and 1 or 0
end
