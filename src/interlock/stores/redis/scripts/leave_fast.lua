local channel, id = ARGV[1], ARGV[2]

-- The only holder leaves, and nobody waits: most of the time.
local sole = call('HGET', line, 'sole')
if sole and string.sub(sole, 1, #id + 1) == id .. ' ' then
  call('HDEL', line, 'sole')
  return 1
end
