-- Extend a lease that has not expired.
-- ARGV: id and ttl.  Returns 0 (gone), 1 (kept) or 2 (kept, and another claim waits).
local id, stop = ARGV[1], now + 1 + tonumber(ARGV[2])
local mine = open(id)
drop('')  -- see `flush`
local state, ended, u, c, its, number, slot, held, rest = parse(settle(id, mine))
local answer = 0
if state and ended > now then
  if ended < stop then
    ended = stop
    write('@' .. id, record_of(state, stop, u, c, its, number, slot, held, rest))
  end
  if state == 'u' and line.used == u then line.ends, line.counted = ended, true end
  keep(stop)
  answer = (head() or line.more > 0) and 2 or 1
end
save()
tell('', '')
return answer
