-- Remove a claim; the next waiters become holders.
-- ARGV: milliseconds for which its run is recorded as completed (0 for no record), channel, let_in (the waiter of the
-- same process that was let in already, or empty), id; with a record, its value, and the claims to remove first.
-- Returns 1 if the claim was in the line, else 0; plus 2 if work is left for the next step; or a list of that number and
-- of id, fence and slot of the promoted waiters of the same channel.
local record, channel, let_in, id, value = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local mine = take_along(6, id, open(id))
if line.more > 0 or line.ends and line.ends <= now then mine = settle(id, mine) end
local state, ended = parse(mine)
local removed = 0
if state and ended > now and (record == 0 or state == 'u') then removed = 1 end
if removed == 0 and state and ended > now then
  drop('')  -- see `flush`
else
  take_out(id, mine)
end
if removed == 1 and record > 0 then
  line.done = now + record
  write('done', line.done)
  write('value', value)
  keep(line.done)
  line.more = line.first + 1  -- the run is completed, so the waiting claims of `once` leave
  flush()
end
hand_over()
if line.used == 0 and line.first > line.last then idle() end
save()
local reply = tell(channel, let_in ~= '' and let_in or id, {0})
local code = removed + (unfinished() and 2 or 0)
if #reply == 1 then return code end
reply[1] = code
return reply
