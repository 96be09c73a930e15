return {tostring(now), redis.call('HGETALL', line), redis.call('ZRANGE', order, 0, -1), redis.call('HGETALL', waiters)}
