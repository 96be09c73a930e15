local mine = open(id, sole)
if ends and ends <= now then sweep() end
local removed = 0
if mine then
  local stop, u = parse(mine)
  if stop > now then
    call('HDEL', line, id)
    removed = 1
    used, changed = used - u, true
    if used == 0 then limit, ends, mixed = nil, nil, false elseif mixed then sweep() end
  end
else
  local record = call('HGET', waiters, id)
  if record then
    if parse(record) > now then removed = 1 end
    call('ZREM', order, id)
    call('HDEL', waiters, id)
    changed = true
  end
end
if changed or more then hand_over() end
save()
if more then removed = removed + 2 end  -- the caller asks again, until all are promoted whose turn has come
if not told[1] then return removed end
local reply = tell(channel, {removed}, let_in)
reply[1] = removed + unheard
if #reply > 1 then return reply end
return reply[1]
