return {tostring(now), call('HGETALL', line), call('ZRANGE', order, 0, -1), call('HGETALL', waiters)}
