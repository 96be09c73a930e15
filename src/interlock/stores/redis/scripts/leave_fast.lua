local channel, id, let_in = ARGV[1], ARGV[2], nil
if ARGV[3] then id, let_in = ARGV[3], id end  -- the heir that knows already, and its fence

-- The only holder leaves, and nobody waits: most of the time.
local found = call('HMGET', line, 'sole', 'quick', 'fence')
local sole = found[1]
local mine_alone = sole and string.sub(sole, 1, #id + 1) == id .. ' '
if mine_alone and not found[2] then
  call('HDEL', line, 'sole')
  return 1
end
