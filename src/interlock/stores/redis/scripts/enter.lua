local mine = open(id)
if mine then
  local stop, u, c, f, where, by = parse(mine)
  if stop > now then  -- the holder itself asks again: its lease goes on, its fence stays
    stop = math.max(stop, now + 1 + ttl)
    last = math.max(last, stop)
    redis.call('HSET', line, id, text(stop, u, c, f, where, by))
    if used == u then ends = stop end
    save()
    return f
  end
end
if ends and ends <= now then sweep() end

local waits = redis.call('ZSCORE', order, id)
if waits then
  local record = redis.call('HGET', waiters, id)
  local stop, by, _ = 0, nil, nil
  if record then stop, _, _, _, _, by = parse(record) end
  if stop <= now then  -- what has expired is never revived
    drop_waiter(id)
    waits = false
  else
    stop = math.max(stop, now + 1 + ttl)
    last = math.max(last, stop)
    redis.call('HSET', waiters, id, text(stop, units, capacity, 0, channel, by))
  end
end
hand_over()

local answer
for place, one in ipairs(told) do
  if one[1] == id then
    answer = one[2]
    table.remove(told, place)
    break
  end
end
if not answer and not waits then
  if mode == 'a' then
    answer = -1
  elseif used + units <= math.min(limit or capacity, capacity) and redis.call('EXISTS', order) == 0 then
    answer = promote(id, now + 1 + ttl, units, capacity, channel, who)
  elseif mode ~= 'w' then
    answer = 0
  else
    local behind = redis.call('ZRANGE', order, -1, -1, 'WITHSCORES')
    redis.call('ZADD', order, (tonumber(behind[2]) or 0) + 1, id)
    redis.call('HSET', waiters, id, text(now + 1 + ttl, units, capacity, 0, channel, who))
    last = math.max(last, now + 1 + ttl)
    quick = math.min(quick or ttl, ttl)
  end
end
save()
tell('', {})
if answer then return answer end
-- The head looks when the first lease of a holder ends.  The others look a little later, in case the head is dead too,
-- and as often as the shortest lease before them could end: whoever is dead delays them by its own lease at most.
local patience = math.max(1, ends - now + 1)
if redis.call('ZRANK', order, id) > 0 then patience = math.min(patience + 1000, math.max(1000, quick or 1000)) end
return -10 - patience
