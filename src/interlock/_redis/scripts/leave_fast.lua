local channel, let_in, id = ARGV[1], ARGV[2], ARGV[3]  -- `let_in`: the successor that knows already, and its fence; or empty

-- The only holder leaves, and nobody waits: most of the time.
local found = call('HMGET', line, 'sole', 'quick', 'fence', 'made', 'kept', 'mark')
local sole = found[1]
local mine_alone = sole and string.sub(sole, 1, #id + 1) == id .. ' '
if mine_alone and not found[2] and found[5] - found[3] / 1000 <= LONG then
  call('HDEL', line, 'sole')
  return 1
end
