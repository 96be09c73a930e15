-- The line of one name, in three keys of one hash slot:
--   line     hash: fence, the last one issued; kept, when the key expires; sole, id and record of the holder if it was
--            alone and nobody waited, or has the whole for itself; else each holder's record by its id, and their
--            totals: units, capacity (the smallest), ends (no lease ends before), mixed (capacities differ); quick, while
--            somebody waits or did (no waiter's lease is shorter); made, the last waiter that was made an heir, while
--            those behind it may have to be
--   order    sorted set: the waiters' ids by arrival
--   waiters  hash: each waiter's record by its id
-- A record is "ends units capacity fence since channel who"; times are milliseconds of the server's clock.
-- A waiter has no fence, 0, unless it is an heir: one that wants the whole for itself, right behind a holder that has it
-- so, or behind another heir. The one before it may let it in as soon as it is out itself; here that one stays the holder
-- until its `leave` comes.
-- After every step this holds: the first waiter does not fit beside the holders; nobody waits where nobody holds; before
-- an heir there are only heirs.

-- An idle name keeps its fence for this time at least; after it the clock is far beyond the fence.
local KEEP = 3600000
local HEIRS = 16  -- so many become heirs in one step
local call = redis.call
local line, order, waiters = KEYS[1], KEYS[2], KEYS[3]
