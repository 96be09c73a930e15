-- A claim asks for the lock, or where it stands.
-- ARGV: ttl, units, capacity, once (0 or 1), channel, about, mode, id.  mode: t (one try), o (one try of one that would
-- wait), w (it waits), a (it stands in line, or is gone).
-- Returns the fence, or {fence, slot}: it holds the lock; 0: occupied; -1: gone; -2: the run was completed before;
-- -(10 + milliseconds): it waits, and looks again then; or {that, before, fence}: it holds the lock with that fence as soon
-- as `before` has left.
local ttl, units, capacity = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local once, channel, about, mode, id = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local stop = now + 1 + ttl
local mine = open(id)

-- Make the record of a claim that enters.
local function enters(state, number, slot, held)
  return text(state, stop, units, capacity, next_fence(), number, slot, held, once, now, channel, about)
end

-- Nobody holds it and nobody waits: most of the time.
if used == 0 and first > last then
  if mode == 'a' then return -1 end
  if once == '1' and done > now then return -2 end
  local slot = count(id, stop, units, capacity)
  call('HSET', line, '@' .. id, enters('u', 0, slot, now), 'fence', fence,
    'using', text(used, limit, ends, mixed, slots, holder))
  keep(stop)
  return tonumber(fence)
end

if mode == 'a' then call('HDEL', line, '') end  -- a server without memory lets scripts go on that have begun to write
mine = settle(id, mine)

-- How long the waiter with that number waits until it looks.  The head looks when the first lease of a holder ends.  The
-- others look a little later, in case the head is dead too, and as often as the shortest lease before them could end.
local function look_after(number)
  local soon = math.max(1, ends - now + 1)
  if tonumber(number) == first then return soon end
  return math.min(soon + 1000, math.max(1000, quick))
end

local answer
local state, ended, u, c, its, number, slot, held, rest = parse(mine)
if state and ended <= now then  -- what has expired is never revived
  call('HDEL', line, '@' .. id, '#' .. number)
  state = nil
end
if state then
  if ended < stop then
    ended = stop
    call('HSET', line, '@' .. id, text(state, stop, u, c, its, number, slot, held, rest))
  end
  if state == 'u' then
    if used == u then ends = ended end
    answer = granted(its, slot)
  else
    answer = -10 - look_after(number)
  end
elseif mode == 'a' then
  answer = -1
elseif once == '1' and done > now then
  answer = -2
elseif used + units <= math.min(limit or capacity, capacity) and not head() then
  slot = count(id, stop, units, capacity)
  call('HSET', line, '@' .. id, enters('u', 0, slot, now), 'fence', fence)
  answer = granted(fence, slot)
elseif mode ~= 'w' then
  answer = 0
else
  local before, its_record = tail()
  if before then
    local _, _, bu, bc, _, _, _, _, brest = parse(its_record)
    if bu ~= bc or string.match(brest, '^%d %d+ (%S+) ') ~= channel then before = '-' end
  else
    before = holder
    first = last + 1
  end
  last = last + 1
  if first == last then quick = ttl end
  quick = math.min(quick, ttl)
  call('HSET', line, '@' .. id, enters('p', last, 0, 0), '#' .. last, id, 'fence', fence)
  answer = -10 - look_after(last)
  if before ~= '-' then answer = {answer, before, tonumber(fence)} end
end
save()
if answer ~= 0 and answer ~= -1 then keep(stop) end
tell('', id)
return answer
