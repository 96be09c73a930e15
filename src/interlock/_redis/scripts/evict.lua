local wanted = ARGV[1]
local found = call('HMGET', line, 'fence', 'mark')
set_right(found[1], found[2])
open(wanted, call('HGET', line, 'sole'))
sweep()
local evicted = 0
local all = call('HGETALL', line)
for i = 1, #all, 2 do
  if string.match(all[i + 1], '^%d+ %d+ %d+ ') and (wanted == '' or wanted == all[i]) then
    call('HDEL', line, all[i])
    evicted = evicted + 1
  end
end
local ids = wanted == '' and call('ZRANGE', order, 0, -1) or {wanted}
local woken = {}
for _, id in ipairs(ids) do
  local record = call('HGET', waiters, id)
  if record then
    local stop, _, _, _, rest = parse(record)
    call('ZREM', order, id)
    call('HDEL', waiters, id)
    if stop > now then
      evicted = evicted + 1
      woken[#woken + 1] = {id, '0', string.match(rest, '^%d+ (%S*) ')}
    end
  end
end
sweep()
hand_over()
save()
for _, one in ipairs(woken) do told[#told + 1] = one end
tell('', {})
if more then return {evicted} end  -- the caller lets the others be promoted
return evicted
