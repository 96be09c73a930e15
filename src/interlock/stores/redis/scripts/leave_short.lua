-- The short cut of `leave`, the first part of the script: the claim is the only holder and exclusive, and nobody waits or
-- the first waiter is exclusive.  Nothing is written unless the short cut applies.
-- ARGV and replies: see leave.lua.  Fields: see line.lua.
do
  local call, key = redis.call, KEYS[1]
  local record, channel, let_in, id = unpack(ARGV)
  local found = call('HMGET', key, 'using', 'queue', 'kept')
  local ends, holder
  if found[1] and record == '0' then ends, holder = string.match(found[1], '^%d+ %d+ (%d+) %d %S+ (%S+)$') end
  if holder == id then
    local clock = call('TIME')
    local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
    if tonumber(ends) <= now then  -- see leave.lua
    elseif not found[2] then
      if (tonumber(found[3]) or 0) < now + 240000 then
        call('HDEL', key, '@' .. id, 'using')
        return 1
      end
    else
      local first, last, rest = string.match(found[2], '^(%d+) (%d+)( %d+ 0)$')
      local next = first and call('HGET', key, '#' .. first)
      local its = next and call('HGET', key, '@' .. next)
      local stop, u, c, fence, about
      if its then stop, u, c, fence, about = string.match(its, '^p (%d+) (%d+) (%d+) (%d+) %d+ 0 0 (.*)$') end
      if stop and u == c and tonumber(stop) > now then
        call('HDEL', key, '@' .. id, '#' .. first, first == last and 'queue' or '')
        local using = u .. ' ' .. u .. ' ' .. stop .. ' 0 - ' .. next
        its = 'u ' .. stop .. ' ' .. u .. ' ' .. u .. ' ' .. fence .. ' 0 0 ' .. now .. ' ' .. about
        if first == last then
          call('HSET', key, 'using', using, '@' .. next, its)
        else
          call('HSET', key, 'using', using, '@' .. next, its, 'queue', first + 1 .. ' ' .. last .. rest)
        end
        if next == let_in then return 1 end  -- this process has let it in already
        local where = string.match(about, '^%d %d+ (%S+) ')
        if where == channel then return {1, next, tonumber(fence), 0} end
        local answer = redis.pcall('PUBLISH', where, next .. ' ' .. fence .. ' 0')
        return type(answer) == 'table' and answer.err and 5 or 1
      end
    end
  end
end
