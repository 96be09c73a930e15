-- Nobody holds the lock and nobody waits: let the key expire when the clock is beyond the fence, and forget when the line
-- was written, unless the fence is ahead of the clock.
local function idle(fence, kept)
  if tonumber(fence) <= micros then call('HDEL', line, 'mark') end
  local fenced = fence / 1000
  if kept - fenced <= LONG then return end
  local stop = math.floor(math.max(fenced, now)) + KEEP + SPARE
  if kept - stop > 0 then
    call('HSET', line, 'kept', stop)
    call('PEXPIREAT', line, stop)
  end
end
