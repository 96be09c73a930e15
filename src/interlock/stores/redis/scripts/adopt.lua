-- A claim that holds the lock goes on under another id, with its fence, slot and place.
-- ARGV: id, new id, ttl, channel, about.
-- Returns the fence, or {fence, slot}; -1 if it is gone.
local id, new, ttl, channel, about = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local known = open(new)
call('HDEL', line, '')  -- a server without memory lets scripts go on that have begun to write
known = settle(new, known)
local answer = -1
local state, ended, _, _, its, _, slot = parse(known)
if state == 'u' and ended > now then  -- it was done, and the reply was lost
  answer = granted(its, slot)
else
  local stop = now + 1 + ttl
  local u, c, number, held, rest
  state, ended, u, c, its, number, slot, held, rest = parse(call('HGET', line, '@' .. id))
  if state == 'u' and ended > now then
    rest = string.match(rest, '^%d %d+ ') .. channel .. ' ' .. about
    call('HDEL', line, '@' .. id)
    call('HSET', line, '@' .. new, text('u', stop, u, c, its, number, slot, held, rest))
    if holder == id then holder = new end
    ends = used == u and stop or math.min(ends, stop)
    keep(stop)
    answer = granted(its, slot)
  end
end
save()
tell('', '')
return answer
