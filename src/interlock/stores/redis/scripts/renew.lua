-- Extend a lease that has not expired.
-- ARGV: id, ttl, and the claims to remove first.  Returns 0 (gone), 1 (kept), 2 (kept, and another claim waits) or 3 (the
-- claim is a waiter, not a holder).
local id, stop = ARGV[1], now + 1 + tonumber(ARGV[2])
local mine = take_along(3, id, open(id))
drop('')  -- see `flush`
local state, ended, u, c, its, number, slot, held, rest = parse(settle(id, mine))
local answer = 0
if state and ended > now then
  if ended < stop then
    ended = stop
    write('@' .. id, record_of(state, stop, u, c, its, number, slot, held, rest))
  end
  if state == 'u' and line.used == u and not line.cursor then line.ends, line.counted = ended, true end
  keep(stop)
  answer = state == 'p' and not unfinished() and 3 or (head() or line.more > 0) and 2 or 1
end
save()
tell('', ARGV[3] and id or '')  -- with claims to remove first, its process has let it in already
return answer
