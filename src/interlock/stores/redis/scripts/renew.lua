local answers = {}
for i = 1, #KEYS, 3 do
  line, order, waiters = KEYS[i], KEYS[i + 1], KEYS[i + 2]
  local at = (i - 1) / 3 * 2
  local id, ttl = ARGV[at + 1], tonumber(ARGV[at + 2])
  local mine = open(id, call('HGET', line, 'sole'))
  local record = mine or call('HGET', waiters, id)
  local alive = 0
  if record then
    local stop, u, c, f, rest = parse(record)
    if stop > now then
      alive = 1
      stop = math.max(stop, now + 1 + ttl)
      if kept < stop + KEEP then kept = keep(stop) end
      if mine then write(id, text(stop, u, c, f, rest)) else call('HSET', waiters, id, text(stop, u, c, f, rest)) end
      if mine and used == u then
        ends, changed = stop, true
      end
    end
  end
  if ends and ends <= now then
    sweep()
    hand_over()
  end
  save()
  tell('', {})
  answers[#answers + 1] = alive
end
return answers
