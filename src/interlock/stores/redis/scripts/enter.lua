-- Enter a claim, or return the state of one that entered before.
-- ARGV: ttl, units, capacity, once (0 or 1), channel, mode, about, id.  mode: t (one try), w (wait), a (it entered
-- before).
-- Returns the fence, or {fence, slot}: it holds the lock; 0: occupied; -1: gone; -2: the run was completed before;
-- -3: one step could not drop or promote all, and the claim does not hold the lock: the client sends it again;
-- -(10 + milliseconds): it waits, and polls after that time; or {that, before, fence}: it waits, and will hold the lock
-- with that fence as soon as the claim `before` has left.
local ttl, units, capacity = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local once, channel, mode, about, id = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local stop = now + 1 + ttl
local mine = open(id)
local rest = once .. ' ' .. now .. ' ' .. channel .. ' ' .. about
local is_done = once == '1' and line.done > now
if line.done > 0 and line.done <= now then  -- the record has expired; without one, most steps take the short cut
  drop('done')
  drop('value')
  line.done = 0
end

-- The time until a waiter polls.  The first waiter polls when the first lease of a holder expires.  The others poll a
-- little later, in case the first one is dead too, and as often as the shortest lease before them could expire.
local function look_after(number)
  local soon = math.max(1, line.ends - now + 1)
  if number == line.first then return soon end
  return math.min(soon + 1000, math.max(1000, line.quick))
end

-- Enter the line as a waiter; return the reply.
local function stand()
  -- Who is right before it, if that is of the same process and wants the lock for itself?
  local before, record = line.holder, nil
  while line.first <= line.last do
    before = call('HGET', line.key, '#' .. line.last)
    record = before and call('HGET', line.key, '@' .. before)
    if record then break end
    before = line.holder
    line.room = line.room - 1
    if line.room <= 0 then break end
    drop('#' .. line.last)
    line.last = line.last - 1
  end
  if record then
    local _, _, u, c, _, _, _, _, its_rest = parse(record)
    if u ~= c or channel_in(its_rest) ~= channel then before = '-' end
  elseif line.first <= line.last then  -- a great many waiters have left
    before = '-'
  else
    line.quick = ttl
  end
  line.last = line.last + 1
  line.quick = math.min(line.quick, ttl)
  line.queued = true
  local its = next_fence()
  write('fence', its)
  write('#' .. line.last, id)
  write('@' .. id, record_of('p', stop, units, capacity, its, line.last, 0, 0, rest))
  local answer = -10 - look_after(line.last)
  if before == '-' then return answer end
  return {answer, before, tonumber(its)}
end

-- Return the reply to a claim that is in the line.
local function extended(record)
  local state, ended, u, c, its, number, slot, held, its_rest = parse(record)
  if not state or ended <= now then  -- an expired claim is never renewed
    drop('@' .. id)
    drop('#' .. (number or ''))
    flush()
    if state == 'u' then uncount(u, c, slot) end
    return nil
  end
  if ended < stop then
    ended = stop
    write('@' .. id, record_of(state, stop, u, c, its, number, slot, held, its_rest))
  end
  if state == 'p' then return unfinished() and -3 or -10 - look_after(tonumber(number)) end
  if line.used == u and not line.cursor then line.ends, line.counted = ended, true end
  return granted(its, slot)
end

local answer, room
if line.used > 0 or line.first <= line.last then
  if mode == 'a' then drop('') end  -- see `flush`
  mine = settle(id, mine)
  answer = mine and extended(mine)
end
if not answer then room = line.used + units <= math.min(line.limit or capacity, capacity) and not head() end
if answer then  -- the claim entered before
elseif mode == 'a' then
  answer = -1
elseif is_done then
  answer = -2
elseif unfinished() then
  answer = -3
elseif room then
  local its, slot = next_fence(), count(id, stop, units, capacity)
  write('fence', its)
  write('@' .. id, record_of('u', stop, units, capacity, its, 0, slot, now, rest))
  answer = granted(its, slot)
elseif mode ~= 'w' then
  answer = 0
else
  answer = stand()
end
if type(answer) == 'table' or answer > 0 or answer < -3 then keep(stop) end
save()
tell('', id)
return answer
