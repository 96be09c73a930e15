-- The line of one name, in one hash.  This text precedes each script.  Fields:
--   fence   the highest fence that was issued: microseconds of the server's clock, or the last fence plus one
--   kept    when the key expires
--   done    the end of the record that a run of `once` was completed
--   value   the value of that run
--   using   totals of the holders: "units capacity ends mixed slots holder": the smallest capacity; no lease ends before
--           `ends`; mixed is 1 if capacities differ; slots has a 1 for each number that is taken, or is "-"; holder is the
--           id if one has it all for itself, else "-"
--   queue   of the waiters: "first last quick more": the numbers of the first and the last; no waiter's lease is shorter
--           than `quick`; more is not 0 while a step has left work on the waiters for the next step: it is 1, or, while
--           waiting claims of `once` leave after a completed run, the number of the next claim to check, plus one
--   sweep   during a check of holders for expired leases: "cursor ends limit mixed": the cursor of HSCAN, and the totals
--           of the holders found alive so far; mixed is 2 if the check must be repeated
--   #N      the id of the waiter with that number; missing for a waiter that has left
--   @ID     a claim: "state ends units capacity fence number slot held once since channel about"; state is u (it holds
--           the lock; number is 0) or p (it waits)
-- Times are milliseconds of the server's clock.  A claim gets its fence when it enters.  After every step there is no
-- room for the first waiter beside the holders, and there is no waiter without a holder, unless the step has left work
-- for the next step, which the caller requests.
local call = redis.call
local NEVER = 99999999999999
local clock = call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local instant = clock[1] .. string.sub('00000' .. clock[2], -6)  -- microseconds; as text, since formatting them is slow
-- The state of the line in one table, because Lua makes functions with few shared variables faster.  Writes and deletions
-- are collected until `save`.  A step checks, drops and passes over at most `room` claims, and promotes at most `batch`
-- claims, because the server does nothing else during a step, and `unpack` has a limit.
local line = {key = KEYS[1], room = 1000, batch = 250, told = {}, drops = {}, writes = {}, counted = false, queued = false,
  fence = '0', kept = 0, done = 0, used = 0, first = 1, last = 0, mixed = '0', slots = '-', holder = '-'}

-- Read a line; return the record of one claim.
local function open(id)
  local found = call('HMGET', line.key, 'fence', 'kept', 'done', 'using', 'queue', '@' .. id, 'sweep')
  line.fence, line.kept, line.done = found[1] or '0', tonumber(found[2]) or 0, tonumber(found[3]) or 0
  line.counted, line.queued = false, false
  line.used, line.limit, line.ends, line.mixed, line.slots, line.holder = 0, nil, nil, '0', '-', '-'
  line.first, line.last, line.quick, line.more, line.cursor = 1, 0, 0, 0, nil
  if found[4] then
    local used, limit, ends
    used, limit, ends, line.mixed, line.slots, line.holder =
      string.match(found[4], '^(%d+) (%d+) (%d+) (%d) (%S+) (%S+)$')
    line.used, line.limit, line.ends = tonumber(used), tonumber(limit), tonumber(ends)
  end
  if found[5] then
    local first, last, quick, more
    first, last, quick, more = string.match(found[5], '^(%d+) (%d+) (%d+) (%d+)$')
    line.first, line.last, line.quick, line.more = tonumber(first), tonumber(last), tonumber(quick), tonumber(more)
  end
  line.swept = found[7]
  if found[7] then
    line.cursor, line.soon, line.least, line.varied = string.match(found[7], '^(%d+) (%d+) (%d+) (%d)$')
    line.soon, line.least = tonumber(line.soon), tonumber(line.least)
  end
  return found[6]
end

local function parse(record)
  local state, stop, u, c, its, number, slot, held, rest =
    string.match(record or '', '^(%a) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  return state, tonumber(stop), tonumber(u), tonumber(c), its, number, slot, held, rest
end

local function record_of(state, stop, u, c, its, number, slot, held, rest)
  return state .. ' ' .. stop .. ' ' .. u .. ' ' .. c .. ' ' .. its .. ' ' .. number .. ' ' .. slot .. ' ' .. held
    .. ' ' .. rest
end

local function drop(field)
  line.drops[#line.drops + 1] = field
end

local function write(field, value)
  line.writes[#line.writes + 1] = field
  line.writes[#line.writes + 1] = value
end

-- Perform the collected deletions and writes; deletions first: a script that begins with one may go on out of memory.
local function flush()
  if line.drops[1] then call('HDEL', line.key, unpack(line.drops)) end
  if line.writes[1] then call('HSET', line.key, unpack(line.writes)) end
  line.drops, line.writes = {}, {}
end

-- The channel of a claim, from the rest of its record.
local function channel_in(rest)
  return string.match(rest, '^%d %d+ (%S+) ')
end

-- Issue the next fence, as text.
local function next_fence()
  local before = line.fence
  -- Texts of the same length compare like numbers.
  if #before == #instant and before >= instant or #before > #instant then
    line.fence = string.format('%.0f', tonumber(before) + 1)
  else
    line.fence = instant
  end
  return line.fence
end

-- Let the key live until 60 s after `stop`: when the fence of an idle name is lost, the clock is beyond it, also the one
-- of another server.  30 s more, so that most steps need not set the expiry again.
local function keep(stop)
  if line.kept >= stop + 60000 then return end
  line.kept = stop + 90000
  write('kept', line.kept)
  line.expires = true
end

-- The lock is free and nobody waits: a key with a late expiry expires when the clock is beyond the fence.
local function idle()
  local stop = math.max(now, tonumber(line.fence) / 1000, line.done) + 90000
  if line.kept - stop > 240000 then
    line.kept = math.floor(stop)
    write('kept', line.kept)
    line.expires = true
  end
end

-- Mark a slot as taken or free.
local function mark(slot, taken)
  local all = line.slots == '-' and '' or line.slots
  all = all .. string.rep('0', slot + 1 - #all)
  all = string.gsub(string.sub(all, 1, slot) .. taken .. string.sub(all, slot + 2), '0+$', '')
  line.slots = all == '' and '-' or all
end

-- Add a holder to the totals; return its slot: `slot`, or the lowest free one.
local function count(id, stop, u, c, slot)
  line.counted = true
  line.holder = line.used == 0 and u == c and id or '-'
  line.used = line.used + u
  if line.limit and line.limit ~= c then line.mixed = '1' end
  line.limit = math.min(line.limit or c, c)
  line.ends = math.min(line.ends or stop, stop)
  if u ~= 1 or c < 2 or c > 1024 then return 0 end  -- such holders have no slots
  slot = slot or line.slots == '-' and 0 or (string.find(line.slots, '0', 1, true) or #line.slots + 1) - 1
  mark(slot, '1')
  return slot
end

-- Set the totals of a free lock.
local function clear()
  line.counted = true
  line.used, line.limit, line.ends, line.mixed, line.slots, line.holder = 0, nil, nil, '0', '-', '-'
  line.cursor = nil
end

-- Subtract a dropped holder from the totals.
local function uncount(u, c, slot)
  line.used, line.counted = line.used - u, true
  if line.used <= 0 then
    clear()
  elseif u == 1 and c >= 2 and c <= 1024 then
    mark(tonumber(slot), '0')
  end
end

-- Add a holder to the totals of those that a check has found alive.
local function alive(stop, c)
  line.soon = math.min(line.soon, stop)
  if line.least ~= 0 and line.least ~= c and line.varied == '0' then line.varied = '1' end
  line.least = line.least == 0 and c or math.min(line.least, c)
end

-- Check the holders: drop the holders whose leases have expired, and sum up the others.  If one step can't check all, `ends`
-- is not in the future, and the next step continues.  With `anew`, a holder has left: repeat an incomplete check after its
-- end, because its totals may contain that holder.
local function sweep(anew)
  flush()
  if not line.cursor then
    line.cursor, line.soon, line.least, line.varied = '0', NEVER, 0, '0'
  elseif anew then
    line.varied = '2'
  end
  repeat
    local found = call('HSCAN', line.key, line.cursor, 'COUNT', 250)
    local all = found[2]
    line.room = line.room - 10 - #all / 2
    line.cursor = found[1]
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 1) == '@' then
        local state, stop, u, c, _, _, slot = parse(all[i + 1])
        if state == 'u' and stop > now then
          alive(stop, c)
        elseif state == 'u' and call('HDEL', line.key, all[i]) == 1 then  -- HSCAN may return a field twice
          uncount(u, c, slot)
        end
      end
    end
  until not line.cursor or line.cursor == '0' or line.room <= 0
  if not line.cursor then return end  -- nobody holds the lock
  line.counted = true
  if line.cursor ~= '0' then
    line.ends = math.min(line.ends, now)
  elseif line.least == 0 then
    clear()
  elseif line.varied == '2' then
    line.soon, line.least, line.varied, line.ends = NEVER, 0, '0', now
  else
    line.ends, line.limit, line.mixed, line.cursor = line.soon, line.least, line.varied, nil
  end
end

-- Return the id and the facts of the first waiter whose lease has not expired; drop the waiters before it, and the claims of
-- `once` while a completed run is recorded.  If one step can't drop all of these, return nothing, and set `more`.
local function head()
  while line.first <= line.last do
    local id = call('HGET', line.key, '#' .. line.first)
    local state, stop, u, c, its, _, _, _, rest = parse(id and call('HGET', line.key, '@' .. id))
    local lives = state == 'p' and stop > now
    local over = lives and line.done > now and string.sub(rest, 1, 1) == '1'
    if lives and not over then return id, stop, u, c, its, rest end
    if line.room <= 0 then
      line.more, line.queued = math.max(line.more, 1), true
      return
    end
    line.room = line.room - 1
    if state == 'p' then drop('@' .. id) end
    if over then line.told[#line.told + 1] = {id, '0', 0, channel_in(rest)} end
    drop('#' .. line.first)
    line.first = line.first + 1
    line.queued = true
  end
end

-- Promote waiters in order, up to the first waiter for which there is no room; promote none before all holders are checked.
-- Before that, after a completed run, remove the waiting claims of `once`.
local function hand_over()
  if line.more > 0 then
    local place = math.max(line.more - 1, line.first)
    while line.more > 1 and line.done > now and place <= line.last and line.room > 0 do
      local id = call('HGET', line.key, '#' .. place)
      local state, _, _, _, _, _, _, _, rest = parse(id and call('HGET', line.key, '@' .. id))
      if state == 'p' and string.sub(rest, 1, 1) == '1' then
        drop('@' .. id)
        drop('#' .. place)
        line.told[#line.told + 1] = {id, '0', 0, channel_in(rest)}
        state = nil
      end
      if not state and place == line.first then line.first = place + 1 end
      place = place + 1
      line.room = line.room - 1
    end
    line.more = line.more > 1 and line.done > now and place <= line.last and place + 1 or 0
    line.queued = true
    flush()
  end
  for turn = 1, line.batch + 1 do
    if line.limit and line.used >= line.limit or line.ends and line.ends <= now then return end
    local id, stop, u, c, its, rest = head()
    if not id or line.used + u > math.min(line.limit or c, c) then return end
    line.queued = true
    if turn > line.batch then
      line.more = math.max(line.more, 1)
      return
    end
    drop('#' .. line.first)
    line.first = line.first + 1
    local slot = count(id, stop, u, c)
    write('@' .. id, record_of('u', stop, u, c, its, 0, slot, now, rest))
    line.told[#line.told + 1] = {id, its, slot, channel_in(rest)}
  end
end

-- Return true if work is left for the next step.
local function unfinished()
  return line.more > 0 or line.ends and line.ends <= now
end

-- Drop the holders whose leases have expired, and promote; return the record of one claim after that.
local function settle(id, mine)
  local ended = line.ends and line.ends <= now
  if ended then sweep() end
  hand_over()
  if not ended and not line.told[1] then return mine end
  flush()
  return call('HGET', line.key, '@' .. id)
end

-- Remove a claim by its record, and free its room or its place among the waiters.
local function take_out(id, record)
  local state, _, u, c, _, number, slot = parse(record)
  drop('@' .. id)
  if state == 'p' then
    drop('#' .. number)
    flush()  -- it is no longer the next waiter
  elseif state == 'u' then
    uncount(u, c, slot)
    if line.mixed == '1' then sweep(true) end
  end
end

-- Remove the claims whose ids are in ARGV from the place `first` on: their releases are under way, and the process of `id`
-- has already let `id` in.  Then return the record of `id`.
local function take_along(first, id, mine)
  if not ARGV[first] then return mine end
  drop('')  -- see `flush`
  for place = first, #ARGV do take_out(ARGV[place], call('HGET', line.key, '@' .. ARGV[place])) end
  hand_over()
  flush()
  return call('HGET', line.key, '@' .. id)
end

-- Write all that has changed.
local function save()
  if line.counted and line.used > 0 then
    write('using', line.used .. ' ' .. line.limit .. ' ' .. line.ends .. ' ' .. line.mixed .. ' ' .. line.slots .. ' '
      .. line.holder)
  elseif line.counted then
    drop('using')
  end
  if line.queued and line.first <= line.last then
    write('queue', line.first .. ' ' .. line.last .. ' ' .. line.quick .. ' ' .. line.more)
  elseif line.queued then
    drop('queue')
  end
  if line.cursor and line.ends <= now then
    write('sweep', line.cursor .. ' ' .. line.soon .. ' ' .. line.least .. ' ' .. line.varied)
  elseif line.swept then
    drop('sweep')
  end
  flush()
  if line.expires then call('PEXPIREAT', line.key, line.kept) end
  line.expires = false
end

-- Notify the promoted claims, except `knows`: by a message, or by the reply if they are of the caller's process.
local function tell(channel, knows, reply)
  for _, one in ipairs(line.told) do
    local id, its, slot, where = unpack(one)
    if id == knows then  -- this process has let it in already
    elseif where == channel then
      reply[#reply + 1] = id
      reply[#reply + 1] = tonumber(its)
      reply[#reply + 1] = slot
    else
      redis.pcall('PUBLISH', where, id .. ' ' .. its .. ' ' .. slot)  -- without that right it waits for its own look
    end
  end
  return reply
end

-- The reply to a holder: its fence, and its slot if that is not 0.
local function granted(its, slot)
  if tonumber(slot) == 0 then return tonumber(its) end
  return {tonumber(its), tonumber(slot)}
end
