local found = call('HMGET', line, 'fence', 'mark')
local moment = found[1] and math.max(now, math.floor(found[2] or found[1] / 1000)) or now  -- nothing is set right by who only looks
return {string.format('%.0f', moment), call('HGETALL', line), call('ZRANGE', order, 0, -1), call('HGETALL', waiters)}
