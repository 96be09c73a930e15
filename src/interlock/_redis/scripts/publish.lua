-- Tell another process; where this user may not, its waiters hear by their own look.
local unheard = 0
local function publish(channel, text)
  local answer = redis.pcall('PUBLISH', channel, text)
  if type(answer) == 'table' and answer.err then unheard = 4 end
end
