local mine = open(id, found[1])
if kept < stop + KEEP then kept = keep(stop) end
if mine then
  local ended, u, c, f, rest = parse(mine)
  if ended > now then  -- the holder itself asks again: its lease goes on, its fence stays
    stop = math.max(stop, ended)
    write(id, text(stop, u, c, f, rest))
    if used == u then
      ends, changed = stop, true
    end
    save()
    return tonumber(f)
  end
end
if ends and ends <= now then sweep() end

local waits = extend(id, stop)
if waits == false then  -- what has expired is never revived
  call('ZREM', order, id)
  call('HDEL', waiters, id)
end
if changed or used == 0 or more then hand_over() end

local answer, head
local about = now .. ' ' .. channel .. ' ' .. who
for place, one in ipairs(told) do
  if one[1] == id then
    answer = one[2]
    table.remove(told, place)
    break
  end
end
if waits and not answer then
  head = call('ZRANK', order, id) == 0
elseif not answer then
  local behind = call('ZRANGE', order, -1, -1, 'WITHSCORES')
  if mode == 'a' then
    answer = -1
  elseif not behind[1] and used + units <= math.min(limit or capacity, capacity) then
    answer = promote(id, stop, units, capacity, about)
  elseif mode ~= 'w' then
    answer = 0
  else
    head = not behind[1]
    call('ZADD', order, (tonumber(behind[2]) or 0) + 1, id)
    call('HSET', waiters, id, text(stop, units, capacity, 0, about))
    if head then
      call('PEXPIREAT', order, kept)
      call('PEXPIREAT', waiters, kept)
    end
    if not quick or ttl < quick then
      quick = ttl
      write('quick', quick)
    end
  end
end
save()
if told[1] then tell('', {}) end
if answer then return tonumber(answer) end
return -10 - recheck_after(ends, head, quick)
