local fence, kept, used, limit, ends, mixed, quick, told, changed, alone
local writes, was_mixed, more, was_more = {}, false, false, false

local function parse(record)
  local stop, u, c, f, rest = string.match(record, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  return tonumber(stop), tonumber(u), tonumber(c), f, rest
end

local function text(stop, u, c, f, rest)
  return stop .. ' ' .. u .. ' ' .. c .. ' ' .. f .. ' ' .. rest
end

-- Keep for `save` what is to be written into the line.
local function write(field, value)
  writes[#writes + 1] = field
  writes[#writes + 1] = value
end

-- Count one more holder.
local function count(stop, u, c)
  used = used + u
  if limit and limit ~= c then mixed = '1' end
  limit = math.min(limit or c, c)
  ends = math.min(ends or stop, stop)
  changed = true
end

-- Read a line, in its general form; return the record of one holder.
local function open(id, sole)
  told, changed, alone, more, was_more = {}, false, false, false, false
  if sole then
    local holder, record = string.match(sole, '^(%S+) (.*)$')
    call('HSET', line, holder, record)
    call('HDEL', line, 'sole')
    local found = call('HMGET', line, 'fence', 'kept', 'quick')
    fence, kept, quick = found[1], tonumber(found[2]) or 0, tonumber(found[3])
    used, limit, ends, mixed = 0, nil, nil, false
    count(parse(record))
    return holder == id and record
  end
  local found = call('HMGET', line, id, 'fence', 'kept', 'units', 'capacity', 'ends', 'mixed', 'quick', 'more')
  fence, kept, used = found[2], tonumber(found[3]) or 0, tonumber(found[4]) or 0
  limit, ends, mixed, quick = tonumber(found[5]), tonumber(found[6]), found[7], tonumber(found[8])
  was_mixed, was_more = mixed, found[9]
  more = was_more
  return found[1]
end

-- Write what was changed.
local function save()
  if more then
    write('more', '1')
  elseif was_more then
    call('HDEL', line, 'more')
  end
  if alone then
    call('HDEL', line, 'units', 'capacity', 'ends', 'mixed')
  elseif changed and used == 0 then
    call('HDEL', line, 'units', 'capacity', 'ends', 'mixed', 'quick', 'made')
    if fence then idle(fence, kept) end
  elseif changed then
    write('units', used)
    write('capacity', limit)
    write('ends', ends)
    if mixed then write('mixed', '1') elseif was_mixed then call('HDEL', line, 'mixed') end
  end
  if used > 0 and (changed or writes[1]) then write('mark', now) end
  if writes[1] then
    call('HSET', line, unpack(writes))
    writes = {}
  end
end

-- Drop the holders whose leases have ended, and count the others afresh.
local function sweep()
  if writes[1] then
    call('HSET', line, unpack(writes))
    writes = {}
  end
  used, limit, ends, mixed, changed = 0, nil, nil, false, true
  local all = call('HGETALL', line)
  for i = 1, #all, 2 do
    local stop, u, c = string.match(all[i + 1], '^(%d+) (%d+) (%d+) ')
    if stop then
      if tonumber(stop) > now then
        count(tonumber(stop), tonumber(u), tonumber(c))
      else
        call('HDEL', line, all[i])
      end
    end
  end
end

-- Make a claim a holder, with a new fence unless it is a successor.
local function promote(id, stop, u, c, rest, successors)
  local its = successors
  if not its or its == '0' then
    its = next_fence(fence)
    fence = its
    write('fence', fence)
  end
  alone = used == 0 and u == c
  local record = text(stop, u, c, its, rest)
  if alone then write('sole', id .. ' ' .. record) else write(id, record) end
  count(stop, u, c)
  return its
end

-- Promote the waiters whose turn has come, from the head; nobody overtakes one that does not fit.
local function hand_over()
  more = false
  for number = 1, BATCH + 1 do
    if limit and used >= limit then return end
    local head = call('ZRANGE', order, 0, 0)[1]
    if not head then return end
    local record = call('HGET', waiters, head)
    local stop, u, c, f, rest
    if record then stop, u, c, f, rest = parse(record) end
    local alive = stop and stop > now
    if alive and used + u > math.min(limit or c, c) then return end
    if number > BATCH then
      more = true
      return
    end
    call('ZREM', order, head)
    call('HDEL', waiters, head)
    if alive then
      told[#told + 1] = {head, promote(head, stop, u, c, from_now(rest), f), string.match(rest, '^%d+ (%S*) ')}
    end
    if #writes > 2000 then  -- `unpack` has a limit
      call('HSET', line, unpack(writes))
      writes = {}
    end
  end
end

-- Tell those who were promoted and do not know it: by message, or by the reply if the caller's process is theirs.
local function tell(channel, reply, let_in)
  for _, one in ipairs(told) do
    if let_in == one[1] .. ' ' .. one[2] then  -- it has begun
    elseif one[3] == channel then
      reply[#reply + 1] = one[1]
      reply[#reply + 1] = tonumber(one[2])
    else
      publish(one[3], one[1] .. ' ' .. one[2])
    end
  end
  return reply
end
