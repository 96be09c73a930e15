-- Evict one claim, or all, of any process; the waiters among them are notified to look.
-- ARGV: id, or empty for all.
-- Returns how many; as a list if waiters are left to promote, since one step promotes a limited number.
local wanted = ARGV[1]
open(wanted)
local evicted, gone = 0, {}
local all = call('HGETALL', line.key)
for i = 1, #all, 2 do
  local id = string.sub(all[i], 2)
  if string.sub(all[i], 1, 1) == '@' and (wanted == '' or wanted == id) then
    local state, stop, _, _, _, number, _, _, rest = parse(all[i + 1])
    drop(all[i])
    drop('#' .. (number or ''))
    if #line.drops > 1000 then flush() end  -- `unpack` has a limit
    if state and stop > now then
      evicted = evicted + 1
      if state == 'p' then gone[#gone + 1] = {id, '0', 0, channel_in(rest)} end
    end
  end
end
sweep()
hand_over()
save()
for _, one in ipairs(gone) do line.told[#line.told + 1] = one end
tell('', '')
if line.more == '1' then return {evicted} end
return evicted
