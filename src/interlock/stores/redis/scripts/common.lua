local fence, kept, used, limit, ends, mixed, quick, told, changed

local function parse(record)
  local stop, u, c, f, rest = string.match(record, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  return tonumber(stop), tonumber(u), tonumber(c), tonumber(f), rest
end

local function text(stop, u, c, f, rest)
  return string.format('%.0f %d %d %.0f ', stop, u, c, f) .. rest
end

-- Where to tell somebody, from the rest of the record.
local function channel_in(rest)
  return string.match(rest, '^%d+ (%S*) ')
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
  told, changed = {}, false
  if sole then
    local holder, record = string.match(sole, '^(%S+) (.*)$')
    redis.call('HSET', line, holder, record)
    redis.call('HDEL', line, 'sole')
    local found = redis.call('HMGET', line, 'fence', 'kept')
    fence, kept = tonumber(found[1]) or 0, tonumber(found[2]) or 0
    used, limit, ends, mixed, quick = 0, nil, nil, false, nil
    local stop, u, c = parse(record)
    count(stop, u, c)
    return holder == id and record
  end
  local found = redis.call('HMGET', line, id, 'fence', 'kept', 'units', 'capacity', 'ends', 'mixed', 'quick')
  fence, kept, used = tonumber(found[2]) or 0, tonumber(found[3]) or 0, tonumber(found[4]) or 0
  limit, ends, mixed, quick = tonumber(found[5]), tonumber(found[6]), found[7], tonumber(found[8])
  return found[1]
end

-- Drop the holders whose leases have ended, and count the others afresh.
local function sweep()
  used, limit, ends, mixed, changed = 0, nil, nil, false, true
  local all = redis.call('HGETALL', line)
  for i = 1, #all, 2 do
    local stop, u, c = string.match(all[i + 1], '^(%d+) (%d+) (%d+) ')
    if stop then
      if tonumber(stop) > now then
        count(tonumber(stop), tonumber(u), tonumber(c))
      else
        redis.call('HDEL', line, all[i])
      end
    end
  end
end

local function drop_waiter(id)
  redis.call('ZREM', order, id)
  redis.call('HDEL', waiters, id)
end

-- Write a holder's record, with a new fence.
local function promote(id, stop, u, c, rest)
  fence = math.max(fence + 1, micros)
  redis.call('HSET', line, id, text(stop, u, c, fence, rest))
  count(stop, u, c)
  return fence
end

-- Promote the waiters whose turn has come, from the head; nobody overtakes one that does not fit.
local function hand_over()
  while not limit or used < limit do
    local head = redis.call('ZRANGE', order, 0, 0)[1]
    if not head then return end
    local record = redis.call('HGET', waiters, head)
    local stop, u, c, _, rest
    if record then stop, u, c, _, rest = parse(record) end
    if not stop or stop <= now then
      drop_waiter(head)
    elseif used + u > math.min(limit or c, c) then
      return
    else
      drop_waiter(head)
      told[#told + 1] = {head, promote(head, stop, u, c, rest), channel_in(rest)}
    end
  end
end

-- Write what was changed.
local function save()
  if not changed then return end
  if used == 0 then
    redis.call('HDEL', line, 'units', 'capacity', 'ends', 'mixed', 'quick')
    return
  end
  redis.call('HSET', line, 'fence', fence, 'units', used, 'capacity', limit, 'ends', ends)
  if mixed then redis.call('HSET', line, 'mixed', '1') else redis.call('HDEL', line, 'mixed') end
end

-- Tell those who were promoted: by message, or by the reply if the caller's process is theirs.
local function tell(channel, reply)
  for _, one in ipairs(told) do
    if one[3] == channel then
      reply[#reply + 1] = one[1]
      reply[#reply + 1] = one[2]
    else
      redis.call('PUBLISH', one[3], one[1] .. string.format(' %.0f', one[2]))
    end
  end
  return reply
end
