-- The only holder leaves, and the first waiter wants it for itself: most of the time otherwise.
local holder, last, u, c
if sole then holder, last, u, c = string.match(sole, '^(%S+) (%d+) (%d+) (%d+) ') end
local ends = tonumber(last)

-- Make heirs of the waiters behind one that was none: else nobody behind them could be one.
local function make_heirs(fence)
  local last = fence
  for _, id in ipairs(call('ZRANGE', order, 0, HEIRS - 1)) do
    local stop, u, c, f, rest = string.match(call('HGET', waiters, id) or '', '^(%d+) (%d+) (%d+) (%d+) (.*)$')
    if not stop or u ~= c or f ~= '0' then break end
    last = next_fence(last)
    call('HSET', waiters, id, stop .. ' ' .. u .. ' ' .. c .. ' ' .. last .. ' ' .. rest)
  end
  if last ~= fence then call('HSET', line, 'fence', last) end
end

while mine_alone and ends > now do
  local first = call('ZPOPMIN', order)
  local head, place = first[1], first[2]
  if not head then
    call('HDEL', line, 'sole', 'quick')
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
    local sole = head .. ' ' .. stop .. ' ' .. u .. ' ' .. c .. ' ' .. fence .. ' ' .. rest
    if f == '0' then
      call('HSET', line, 'sole', sole, 'fence', fence)
      make_heirs(fence)
    else
      call('HSET', line, 'sole', sole)
    end
    if let_in == head .. ' ' .. fence then return 1 end
    if told == channel then return {1, head, tonumber(fence)} end
    call('PUBLISH', told, head .. ' ' .. fence)
    return 1
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
