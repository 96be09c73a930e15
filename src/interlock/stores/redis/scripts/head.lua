-- The line of one name, in three keys of one hash slot:
--   line     hash: fence, the last one issued; sole, id and record of the holder while there is one and nobody waits;
--            else each holder's record by its id, and their totals: units, capacity (the smallest), ends (no lease
--            ends before), last (no lease of the line ends after), mixed (capacities differ)
--   order    sorted set: the waiters' ids by arrival
--   waiters  hash: each waiter's record by its id
-- A record is "ends units capacity fence channel who"; times are milliseconds of the server's clock.
local KEEP = 3600000  -- an idle name keeps its fence so long; by then the clock is far beyond it
local line, order, waiters = KEYS[1], KEYS[2], KEYS[3]
