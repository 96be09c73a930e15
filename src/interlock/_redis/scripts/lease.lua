-- A record whose lease goes on.
local function renewed(before, ends, stop, u, c, fence, rest)
  return before .. math.max(ends, stop) .. ' ' .. u .. ' ' .. c .. ' ' .. fence .. ' ' .. rest
end

-- Let the lease of a waiter go on: true; false if it has ended, nil if the claim does not wait.
local function extend(id, stop)
  local record = call('HGET', waiters, id)
  if not record then return nil end
  local ends, u, c, fence, rest = string.match(record, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  if tonumber(ends) <= now then return false end
  call('HSET', waiters, id, renewed('', tonumber(ends), stop, u, c, fence, rest))
  return true
end
