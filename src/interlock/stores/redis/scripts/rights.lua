-- Try each command that the scripts use, on an unused line; return the refused commands and their errors.
-- ARGV: when the key expires, a channel.
local refused = {}
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then
    refused[#refused + 1] = string.lower((...))
    refused[#refused + 1] = answer.err
  end
end
try('TIME')
try('HSET', KEYS[1], 'a', 1)
try('HGET', KEYS[1], 'a')
try('HMGET', KEYS[1], 'a')
try('HGETALL', KEYS[1])
try('PEXPIREAT', KEYS[1], ARGV[1])
try('HDEL', KEYS[1], 'a')
try('PUBLISH', ARGV[2], '')
return refused
