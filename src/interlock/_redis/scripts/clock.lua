local clock = call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local instant = clock[1] .. string.sub('00000' .. clock[2], -6)  -- the same as text: formatting large numbers is slow
local now = math.floor(micros / 1000)

-- Let the keys live beyond `stop`; so far beyond that most steps need not do it again.
local function keep(stop)
  local kept = stop + KEEP + SPARE
  call('HSET', line, 'kept', kept)
  call('PEXPIREAT', line, kept)
  call('PEXPIREAT', order, kept)
  call('PEXPIREAT', waiters, kept)
  return kept
end

-- What stands behind the fence in the record of a waiter that holds the lock from now on.
local function from_now(rest)
  return (string.gsub(rest, '^%d+', '%0:' .. string.format('%.0f', now), 1))
end

-- The next fence after `last`, as text.
local function next_fence(last)
  if last and tonumber(last) >= micros then return string.format('%.0f', tonumber(last) + 1) end
  return instant
end

-- How long a waiter waits at most before it looks.  The head looks when the first lease of a holder ends.  The others
-- look a little later, in case the head is dead too, and as often as the shortest lease before them could end: whoever
-- is dead delays them by its own lease at most.
local function recheck_after(ends, head, quick)
  local first = math.max(1, ends - now + 1)
  if head then return first end
  return math.min(first + 1000, math.max(1000, quick or 1000))
end
