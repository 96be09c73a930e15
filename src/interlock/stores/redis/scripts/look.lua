-- Return the server's clock, and all fields of the line.
return {string.format('%.0f', now), call('HGETALL', line.key)}
