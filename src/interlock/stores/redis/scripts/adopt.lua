-- Give the place of a holder to another id, with its fence and slot; a writer can become a reader by its units.
-- ARGV: id, new id, ttl, channel, about, units, and the claims to remove first.
-- Returns the fence, or {fence, slot}; -1 if it is gone; -3 as in enter.lua, and while the same id has waiters to promote.
local id, new, ttl, channel, about, units = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], tonumber(ARGV[6])
local known = take_along(7, new, open(new))
drop('')  -- see `flush`
known = settle(new, known)
local answer = -1
local state, ended, _, _, its, _, slot = parse(known)
if id ~= new and state == 'u' and ended > now then  -- an earlier call did it, and its reply was lost
  answer = granted(its, slot)
else
  local stop = now + 1 + ttl
  local u, c, number, held, rest
  state, ended, u, c, its, number, slot, held, rest = parse(call('HGET', line.key, '@' .. id))
  if state == 'u' and ended > now then
    rest = string.match(rest, '^%d %d+ ') .. channel .. ' ' .. about
    drop('@' .. id)
    local fewer = u == c and units < u
    if fewer then  -- it had the whole lock, so there is no other holder
      u = units
      clear()
      slot = count(new, stop, u, c)
    end
    write('@' .. new, record_of('u', stop, u, c, its, number, slot, held, rest))
    line.counted = true
    if line.holder == id then line.holder = new end
    line.ends = line.used == u and not line.cursor and stop or math.min(line.ends, stop)
    if line.cursor then alive(stop, c) end  -- HSCAN may have passed the place of the new field
    keep(stop)
    if fewer then hand_over() end
    answer = id == new and unfinished() and -3 or granted(its, slot)
  elseif state and unfinished() then  -- its turn may come
    answer = -3
  end
end
save()
tell('', id)
return answer
