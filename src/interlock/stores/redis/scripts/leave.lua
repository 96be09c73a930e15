-- A claim goes; whoever is next holds the lock.
-- ARGV: milliseconds for which it is recorded that its run was completed (0 for no record), channel, let_in (the claim that
-- knows already that it comes next, or empty), id.
-- Returns 1 if it was there, else 0; plus 2 if more are to be promoted than one step does; plus 4 if others could not be
-- told; or a list of that and of id, fence and slot of those of the same channel who were promoted.
local record, channel, let_in, id = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local mine = open(id)
local state, ended, u, c, _, number, slot = parse(mine)

-- The only holder leaves, and nobody waits: most of the time.
if state == 'u' and used == u and first > last and record == 0 then
  call('HDEL', line, '@' .. id, 'using')
  idle()
  return ended > now and 1 or 0
end

call('HDEL', line, '')  -- a server without memory lets scripts go on that have begun to write
if more == '1' or ends and ends <= now then
  state, ended, u, c, _, number, slot = parse(settle(id, mine))
end
local removed = 0
if state and ended > now and (record == 0 or state == 'u') then removed = 1 end
if removed == 1 or state and ended <= now then
  call('HDEL', line, '@' .. id, '#' .. number)
end
if removed == 1 and state == 'u' then
  used = used - u
  if used <= 0 then
    used, limit, ends, mixed, slots, holder = 0, nil, nil, '0', '-', '-'
  elseif mixed == '1' then
    sweep()
  elseif numbered(u, c) then
    mark(tonumber(slot), '0')
  end
end
if removed == 1 and record > 0 then
  done = now + record
  call('HSET', line, 'done', done)
  keep(done)
  -- Those who want to run only if nobody has need not wait any more.
  for place = first, last do
    local other = call('HGET', line, '#' .. place)
    local its_state, _, _, _, _, _, _, _, rest = parse(other and call('HGET', line, '@' .. other))
    if its_state == 'p' and string.sub(rest, 1, 1) == '1' then
      call('HDEL', line, '@' .. other, '#' .. place)
      told[#told + 1] = {other, '0', 0, string.match(rest, '^%d %d+ (%S+) ')}
    end
  end
end
hand_over()
save()
if used == 0 and first > last then idle() end
local reply = tell(channel, let_in ~= '' and let_in or id, {0})
local code = removed + 2 * tonumber(more) + unheard
if #reply == 1 then return code end
reply[1] = code
return reply
