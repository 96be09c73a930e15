-- Return the value of the record of a completed run; nothing without a record.
-- ARGV: "forget" to forget it.
local forget = ARGV[1] == 'forget'
open('')
if line.done <= now then return false end
local value = call('HGET', line.key, 'value') or ''
if forget then
  drop('done')
  drop('value')
  line.done = 0
  if line.used == 0 and line.first > line.last then idle() end
  save()
end
return value
