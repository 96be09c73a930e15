-- Where the clock of the server that wrote the line was ahead of this one's, or this one was set back: make the line as
-- if this clock had been used.  A lease has left what it had when the line was written, and the next fence is beyond
-- those that the other server may have issued without this one hearing of it.
-- Returns true if it was so, and what was read of the line holds no more.
local function set_right(fence, mark)
  local by = fence and math.floor((mark or fence / 1000) - now) or 0
  if by <= 10 then return false end  -- many fences in one step are ahead of the clock by less
  for _, key in ipairs({line, waiters}) do
    local all = call('HGETALL', key)
    for i = 1, #all, 2 do
      local pattern = all[i] == 'sole' and '^(%S+ )(%d+)( .*)$' or '^()(%d+)( %d+ %d+ %d+ .*)$'
      local before, stop, rest = string.match(all[i + 1], pattern)
      if stop then
        before = type(before) == 'string' and before or ''
        call('HSET', key, all[i], before .. string.format('%.0f', math.max(0, tonumber(stop) - by)) .. rest)
      elseif all[i] == 'ends' then
        call('HSET', key, 'ends', string.format('%.0f', tonumber(all[i + 1]) - by))
      end
    end
  end
  local fenced = tonumber(fence) + KEEP * 1000
  call('HSET', line, 'fence', string.format('%.0f', fenced), 'mark', now)
  keep(math.floor(fenced / 1000))
  return true
end
