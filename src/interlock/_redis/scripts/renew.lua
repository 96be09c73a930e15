-- Renew a claim where somebody has the lock for itself, and its lease is good: most of the time.
local function renew_sole(sole, id, stop)
  local holder, last, u, c, fence, rest = string.match(sole, '^(%S+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  local ends = tonumber(last)
  if ends <= now then return end
  local alive = holder == id or extend(id, stop)
  if holder == id then call('HSET', line, 'sole', renewed(id .. ' ', ends, stop, u, c, fence, rest), 'mark', now) end
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
  elseif more then
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
  -- What is wrong with the keys of one name does not keep the others from being renewed.
  local done, answer = pcall(function()
    local found = call('HMGET', line, 'sole', 'fence', 'mark')
    local sole = found[1]
    if set_right(found[2], found[3]) then sole = call('HGET', line, 'sole') end
    return sole and renew_sole(sole, id, stop) or renew(sole, id, stop)
  end)
  if not done then
    writes = {}
    if type(answer) == 'table' then answer = answer.err end
    answer = tostring(answer)
    if string.find(answer, 'OOM', 1, true) then return redis.error_reply(answer) end  -- it is asked again otherwise
  end
  answers[#answers + 1] = answer
end
return answers
