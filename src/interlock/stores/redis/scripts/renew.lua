-- Extend leases that have not expired.
-- KEYS: the line of each claim.  ARGV: id and ttl of each.
-- Returns for each 0 (gone), 1 (kept) or 2 (kept, and another claim waits); or the error of its key.
local function renew(id, stop)
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
    answer = head() and 2 or 1
  end
  save()
  tell('', '')
  return answer
end

local answers = {}
for i = 1, #KEYS do
  line.key, line.told, line.drops, line.writes, line.expires = KEYS[i], {}, {}, {}, false
  -- An error of one key must not prevent the renewal of the others.
  local ok, answer = pcall(renew, ARGV[2 * i - 1], now + 1 + tonumber(ARGV[2 * i]))
  if not ok and type(answer) == 'table' then answer = answer.err end
  answers[i] = ok and answer or tostring(answer)
end
return answers
