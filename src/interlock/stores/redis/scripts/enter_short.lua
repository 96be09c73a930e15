-- The short cut of `enter`, the first part of the script: the lock is free and nobody waits, or one exclusive claim
-- holds it.  Nothing is written unless the short cut applies.
-- ARGV and replies: see enter.lua.  Fields: see line.lua.
do
  local call, key = redis.call, KEYS[1]
  local ttl, units, capacity, once, channel, mode, about, id = unpack(ARGV)
  local found = call('HMGET', key, 'using', 'queue', 'done', 'fence', 'kept', '@' .. id)
  local using, queue = found[1], found[2]
  local ends, holder
  if using then ends, holder = string.match(using, '^%d+ %d+ (%d+) %d %S+ (%S+)$') end
  if not found[3] and not found[6] and mode ~= 'a' and (using and holder ~= '-' or not queue and units == capacity) then
    local clock = call('TIME')
    local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
    local stop, kept = now + 1 + ttl, tonumber(found[5]) or 0
    local fence = clock[1] .. string.sub('00000' .. clock[2], -6)
    if found[4] and found[4] >= fence then fence = string.format('%.0f', tonumber(found[4]) + 1) end
    local answer
    if not using then
      call('HSET', key, 'fence', fence, 'using', units .. ' ' .. units .. ' ' .. stop .. ' 0 - ' .. id,
        '@' .. id, 'u ' .. stop .. ' ' .. units .. ' ' .. units .. ' ' .. fence .. ' 0 0 ' .. now .. ' ' .. once .. ' '
        .. now .. ' ' .. channel .. ' ' .. about)
      answer = tonumber(fence)
    elseif tonumber(ends) > now then
      if mode ~= 'w' then return 0 end
      -- Who is right before it, if that is of the same process and wants the lock for itself?
      local first, last, quick, before = 1, 0, tonumber(ttl), holder
      if queue then
        local more, u, c, where
        first, last, quick, more = string.match(queue, '^(%d+) (%d+) (%d+) (%d+)$')
        first, last, quick = tonumber(first), tonumber(last), math.min(tonumber(quick), ttl)
        before = more == '0' and call('HGET', key, '#' .. last)
        local record = before and call('HGET', key, '@' .. before)
        if record then u, c, where = string.match(record, '^p %d+ (%d+) (%d+) %d+ %d+ %d+ %d+ %d %d+ (%S+) ') end
        before = u and (u == c and where == channel and before or '-')
      end
      if before then
        last = last + 1
        call('HSET', key, 'fence', fence, '#' .. last, id, 'queue', first .. ' ' .. last .. ' ' .. quick .. ' 0',
          '@' .. id, 'p ' .. stop .. ' ' .. units .. ' ' .. capacity .. ' ' .. fence .. ' ' .. last .. ' 0 0 ' .. once
          .. ' ' .. now .. ' ' .. channel .. ' ' .. about)
        local soon = ends - now + 1
        if last > first then soon = math.min(soon + 1000, math.max(1000, quick)) end
        answer = before == '-' and -10 - soon or {-10 - soon, before, tonumber(fence)}
      end
    end
    if answer then
      if kept < stop + 60000 then
        call('HSET', key, 'kept', stop + 90000)
        call('PEXPIREAT', key, stop + 90000)
      end
      return answer
    end
  end
end
