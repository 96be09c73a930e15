-- Evict one claim, or all, of any process; the waiters among them are notified to look.
-- ARGV: id, or empty for all; for the next step of the same eviction also the last two numbers of the reply.
-- Returns the number of evicted claims.  If work on the line is left for the next step, as after `leave`, returns a list
-- of that number.  If claims are left to evict, returns a list of that number, the highest fence to evict, and a cursor:
-- claims that entered later stay.  Evict the waiters first, so that no waiter is promoted and then evicted.
local wanted, upto, cursor = ARGV[1], ARGV[2], ARGV[3]
local record = open(wanted)
local evicted, gone = 0, {}
if upto == '' then upto = line.fence end

-- Drop a claim, and count it if its lease has not expired.
local function out(id, state, stop, u, c, slot, rest)
  if call('HDEL', line.key, '@' .. id) == 0 then return end
  if state == 'u' then uncount(u, c, slot) end
  if stop <= now then return end
  evicted = evicted + 1
  if state == 'p' then gone[#gone + 1] = {id, '0', 0, channel_in(rest)} end
end

if wanted ~= '' then
  local state, stop, u, c, _, number, slot, _, rest = parse(record)
  if state then
    drop('#' .. number)
    out(wanted, state, stop, u, c, slot, rest)
  end
  cursor = '0'
elseif cursor == '' then
  while line.first <= line.last and line.room > 0 do
    local id = call('HGET', line.key, '#' .. line.first)
    local state, stop, u, c, its, _, slot, _, rest = parse(id and call('HGET', line.key, '@' .. id))
    if state == 'p' and tonumber(its) > tonumber(upto) then break end
    if state == 'p' then out(id, state, stop, u, c, slot, rest) end
    drop('#' .. line.first)
    line.first, line.queued, line.room = line.first + 1, true, line.room - 1
  end
  if line.room > 0 then cursor = 'start' end
end
if cursor ~= '' and cursor ~= '0' then
  if cursor == 'start' then cursor = '0' end
  repeat
    local found = call('HSCAN', line.key, cursor, 'COUNT', 250)
    local all = found[2]
    cursor = found[1]
    line.room = line.room - 10 - #all / 2
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 1) == '@' then
        local state, stop, u, c, its, _, slot, _, rest = parse(all[i + 1])
        if state == 'u' and tonumber(its) <= tonumber(upto) then
          out(string.sub(all[i], 2), state, stop, u, c, slot, rest)
        end
      end
    end
  until cursor == '0' or line.room <= 0
end
if cursor == '0' then
  if line.used > 0 and (line.mixed == '1' or line.ends <= now) then sweep(true) end
  hand_over()
  if line.used == 0 and line.first > line.last then idle() end
end
save()
for _, one in ipairs(gone) do line.told[#line.told + 1] = one end
tell('', '')
if cursor ~= '0' then return {evicted, upto, cursor} end
if unfinished() then return {evicted} end
return evicted
