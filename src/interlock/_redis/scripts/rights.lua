-- Try each command that the scripts use, on a line that nobody uses; return what was refused, and why.
local line, order = KEYS[1], KEYS[2]
local refused = {}
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then
    refused[#refused + 1] = string.lower((...))
    refused[#refused + 1] = answer.err
  end
end
try('TIME')
try('EXISTS', line)
try('HSET', line, 'a', 1)
try('HSETNX', line, 'a', 1)
try('HGET', line, 'a')
try('HMGET', line, 'a')
try('HGETALL', line)
try('PEXPIREAT', line, ARGV[1])
try('HDEL', line, 'a')
try('ZADD', order, 1, 'a')
try('ZRANK', order, 'a')
try('ZRANGE', order, 0, -1)
try('PEXPIREAT', order, ARGV[1])
try('ZPOPMIN', order)
try('ZREM', order, 'a')
try('PUBLISH', ARGV[2], '')
return refused
