-- The line of one name, in three keys of one hash slot:
--   line     hash: fence, the last one issued; kept, when the key expires; sole, id and record of the holder if it was
--            alone and nobody waited, or has the whole for itself; else each holder's record by its id, and their
--            totals: units, capacity (the smallest), ends (no lease ends before), mixed (capacities differ); quick, while
--            somebody waits or did (no waiter's lease is shorter); made, the last waiter that was made a successor, while
--            those behind it may have to be; more, while waiters whose turn has come are still to be promoted; mark, the
--            clock's milliseconds when the line was last written, unless the fence says the same
--   order    sorted set: the waiters' ids by arrival
--   waiters  hash: each waiter's record by its id
-- A record is "ends units capacity fence since channel who"; times are milliseconds of the server's clock. Of a holder
-- that has waited, since is "since:held".
-- A waiter has no fence, 0, unless it is a successor: one that wants the whole for itself, right behind a holder that has it
-- so, or behind another successor. The one before it may let it in as soon as it is out itself; here that one stays the holder
-- until its `leave` comes.
-- After every step this holds: the first waiter does not fit beside the holders; nobody waits where nobody holds; before
-- a successor there are only successors.

-- An idle name keeps its fence for KEEP milliseconds at least; then the clock is beyond it, also that of another server
-- which is behind by less.  The keys live for SPARE longer, so that most steps need not move their end.
local KEEP, SPARE = 60000, 30000
local LONG = 240000  -- a key that would live for longer has its end moved when the name is idle
local SUCCESSORS = 16  -- so many become successors in one step
local BATCH = 250  -- so many are promoted in one step: the server does nothing else meanwhile
local call = redis.call
local line, order, waiters = KEYS[1], KEYS[2], KEYS[3]
