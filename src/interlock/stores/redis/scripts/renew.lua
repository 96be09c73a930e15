-- Renew a claim where somebody has the lock for itself, and its lease is good: most of the time.
local function renew_sole(sole, id, stop)
  local holder, last, u, c, fence, rest = string.match(sole, '^(%S+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  local ends = tonumber(last)
  if ends <= now then return end
  local alive = holder == id or extend(id, stop)
  if holder == id then call('HSET', line, 'sole', renewed(id .. ' ', ends, stop, u, c, fence, rest)) end
  if alive and tonumber(call('HGET', line, 'kept')) < stop + KEEP then keep(stop) end
  return alive and 1 or 0
end

local function renew(sole, id, stop)
  local mine = open(id, sole)
  local alive
  if mine then
    local ended, u, c, f, rest = parse(mine)
    alive = ended > now
    if alive then
      stop = math.max(stop, ended)
      write(id, text(stop, u, c, f, rest))
      if used == u then
        ends, changed = stop, true
      end
    end
  else
    alive = extend(id, stop)
  end
  if alive and kept < stop + KEEP then kept = keep(stop) end
  if ends and ends <= now then
    sweep()
    hand_over()
  end
  save()
  tell('', {})
  return alive and 1 or 0
end

local answers = {}
for i = 1, #KEYS, 3 do
  line, order, waiters = KEYS[i], KEYS[i + 1], KEYS[i + 2]
  local at = (i - 1) / 3 * 2
  local id, stop = ARGV[at + 1], now + 1 + tonumber(ARGV[at + 2])
  local sole = call('HGET', line, 'sole')
  answers[#answers + 1] = sole and renew_sole(sole, id, stop) or renew(sole, id, stop)
end
return answers
