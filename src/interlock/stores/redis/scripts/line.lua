-- The line of one name, in one hash.  This stands before each step.  Fields:
--   fence   the highest one that was issued, in microseconds of the server's clock or counted on from there
--   kept    when the key expires
--   done    until when it is recorded that a run of `once` was completed
--   using   totals of the holders: "units capacity ends mixed slots holder": the smallest capacity; no lease ends before
--           `ends`; mixed is 1 if capacities differ; slots has a 1 for each number that is taken, or is "-"; holder is the
--           id if one has it all for itself, else "-"
--   queue   of the waiters: "first last quick more": the numbers of the first and the last; no waiter's lease is shorter
--           than `quick`; more is 1 while others whose turn has come are still to be promoted
--   #N      the id of the waiter with that number; one that gave up leaves a hole
--   @ID     a claim: "state ends units capacity fence number slot held once since channel about"; state is u (it holds
--           the lock; number is 0) or p (it waits)
-- Times are milliseconds of the server's clock.  A claim has its fence from the moment when it enters.  After every step:
-- the first waiter does not fit beside the holders, and nobody waits where nobody holds.
local KEEP, SPARE = 60000, 30000  -- an idle name keeps its fence so long: the clock is beyond it then, also a slow one
local LONG = 240000  -- a key that would live for longer has its end moved when the name is idle
local BATCH = 250  -- so many are promoted in one step: the server does nothing else meanwhile
local LARGEST_SLOTS = 1024

local call = redis.call
local line = KEYS[1]
local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local instant = clock[1] .. string.sub('00000' .. clock[2], -6)  -- the same as text: formatting large numbers is slow
local now = math.floor(micros / 1000)

local fence, kept, done
local used, limit, ends, mixed, slots, holder
local first, last, quick, more
local told, unheard = {}, 0
local had_using, had_queue

-- Read a line; return the record of one claim.
local function open(id)
  local found = call('HMGET', line, 'fence', 'kept', 'done', 'using', 'queue', '@' .. id)
  fence, kept, done = found[1], tonumber(found[2]) or 0, tonumber(found[3]) or 0
  had_using, had_queue = found[4], found[5]
  used, limit, ends, mixed, slots, holder = 0, nil, nil, '0', '-', '-'
  first, last, quick, more = 1, 0, 0, '0'
  if had_using then
    local u, c, e
    u, c, e, mixed, slots, holder = string.match(had_using, '^(%d+) (%d+) (%d+) (%d) (%S+) (%S+)$')
    used, limit, ends = tonumber(u), tonumber(c), tonumber(e)
  end
  if had_queue then
    local f, l, q
    f, l, q, more = string.match(had_queue, '^(%d+) (%d+) (%d+) (%d)$')
    first, last, quick = tonumber(f), tonumber(l), tonumber(q)
  end
  return found[6]
end

local function parse(record)
  local state, stop, u, c, its, number, slot, held, rest =
    string.match(record or '', '^(%a) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  return state, tonumber(stop), tonumber(u), tonumber(c), its, number, slot, held, rest
end

local function text(...)
  return table.concat({...}, ' ')
end

-- Issue the next fence, as text.
local function next_fence()
  local before = tonumber(fence)
  fence = before and before >= micros and string.format('%.0f', before + 1) or instant
  return fence
end

-- Let the key live beyond `stop`; so far beyond that most steps need not do it again.
local function keep(stop)
  if kept >= stop + KEEP then return end
  kept = stop + KEEP + SPARE
  call('HSET', line, 'kept', kept)
  call('PEXPIREAT', line, kept)
end

-- Nobody holds the lock and nobody waits: let the key expire when the clock is beyond the fence.
local function idle()
  local stop = math.max(now, math.floor((tonumber(fence) or 0) / 1000), done) + KEEP
  if kept - stop > LONG then
    kept = stop + SPARE
    call('HSET', line, 'kept', kept)
    call('PEXPIREAT', line, kept)
  end
end

-- Whether holders of that kind are numbered.
local function numbered(u, c)
  return u == 1 and c >= 2 and c <= LARGEST_SLOTS
end

-- Note whether a number is taken.
local function mark(slot, taken)
  local all = slots == '-' and '' or slots
  all = all .. string.rep('0', slot + 1 - #all)
  slots = string.sub(all, 1, slot) .. taken .. string.sub(all, slot + 2)
  slots = string.gsub(slots, '0+$', '')
  if slots == '' then slots = '-' end
end

-- Count one more holder, and give it a number if it is to have one and has none.
local function count(id, stop, u, c, slot)
  holder = used == 0 and u == c and id or '-'
  used = used + u
  if limit and limit ~= c then mixed = '1' end
  limit = math.min(limit or c, c)
  ends = math.min(ends or stop, stop)
  if not numbered(u, c) then return 0 end
  slot = slot or (string.find(slots, '0', 1, true) or slots == '-' and 1 or #slots + 1) - 1
  mark(slot, '1')
  return slot
end

-- Drop the holders whose leases have ended, and count the others afresh.
local function sweep()
  used, limit, ends, mixed, slots, holder = 0, nil, nil, '0', '-', '-'
  local all = call('HGETALL', line)
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) == '@' then
      local state, stop, u, c, _, _, slot = parse(all[i + 1])
      if state == 'u' and stop > now then
        count(string.sub(all[i], 2), stop, u, c, tonumber(slot))
      elseif state == 'u' then
        call('HDEL', line, all[i])
      end
    end
  end
end

-- Return the id and the record of the first waiter whose lease is good; drop those before it.
local function head()
  while first <= last do
    local id = call('HGET', line, '#' .. first)
    local record = id and call('HGET', line, '@' .. id)
    local state, stop = parse(record)
    if state == 'p' and stop > now then return id, record end
    if state == 'p' then call('HDEL', line, '@' .. id) end
    call('HDEL', line, '#' .. first)
    first = first + 1
  end
end

-- Return the id and the record of the last waiter.
local function tail()
  while first <= last do
    local id = call('HGET', line, '#' .. last)
    local record = id and call('HGET', line, '@' .. id)
    if record then return id, record end
    call('HDEL', line, '#' .. last)
    last = last - 1
  end
end

-- Promote the waiters whose turn has come, from the head; nobody overtakes one that does not fit.
local function hand_over()
  more = '0'
  for turn = 1, BATCH + 1 do
    if limit and used >= limit then return end
    local id, record = head()
    if not id then return end
    local _, stop, u, c, its, _, _, _, rest = parse(record)
    if used + u > math.min(limit or c, c) then return end
    if turn > BATCH then
      more = '1'
      return
    end
    call('HDEL', line, '#' .. first)
    first = first + 1
    local slot = count(id, stop, u, c)
    call('HSET', line, '@' .. id, text('u', stop, u, c, its, 0, slot, now, rest))
    told[#told + 1] = {id, its, slot, string.match(rest, '^%d %d+ (%S+) ')}
  end
end

-- Drop the holders whose leases have ended, and promote; return the record of one claim as it is then.
local function settle(id, mine)
  local ended = ends and ends <= now
  if ended then sweep() end
  hand_over()
  if ended or told[1] then mine = call('HGET', line, '@' .. id) end
  return mine
end

-- Write the totals.
local function save()
  if used > 0 then
    local using = text(used, limit, ends, mixed, slots, holder)
    if using ~= had_using then call('HSET', line, 'using', using) end
  elseif had_using then
    call('HDEL', line, 'using')
  end
  if first <= last then
    local queue = text(first, last, quick, more)
    if queue ~= had_queue then call('HSET', line, 'queue', queue) end
  elseif had_queue then
    call('HDEL', line, 'queue')
  end
end

-- Tell another process; where this user may not, its waiters hear by their own look.
local function publish(channel, message)
  local answer = redis.pcall('PUBLISH', channel, message)
  if type(answer) == 'table' and answer.err then unheard = 4 end
end

-- Tell those who were promoted, but for one who knows: by message, or by the reply if the caller's process is theirs.
local function tell(channel, knows, reply)
  for _, one in ipairs(told) do
    local id, its, slot, where = one[1], one[2], one[3], one[4]
    if id == knows then  -- it has begun
    elseif where == channel then
      reply[#reply + 1] = id
      reply[#reply + 1] = tonumber(its)
      reply[#reply + 1] = slot
    elseif where ~= '-' then
      publish(where, id .. ' ' .. its .. ' ' .. slot)
    end
  end
  return reply
end

-- What a holder is answered: its fence, and its number if that is not 0.
local function granted(its, slot)
  if tonumber(slot) == 0 then return tonumber(its) end
  return {tonumber(its), tonumber(slot)}
end
