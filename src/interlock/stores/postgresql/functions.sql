-- The lines of all locks, one row for each claim, and one function for each step: `interlock.core.line` in PL/pgSQL.
-- Empty lines separate the statements.
--
-- Row 0 of a name stays when the lock is free: `top` is the highest fence that was issued, `done` the end of the record
-- of a completed run, `value` the value of that run.  The next claim that finds the line empty uses row 0.  So a lock
-- without contention costs two updates of one row, and no update of an index.  A row with an empty id has no claim.
-- `held` is 0 while a claim waits; its fence was issued when it entered.  Times are microseconds of this server's clock.
--
-- Each step locks its name first (pg_advisory_xact_lock), and then reads the clock and the line.  It must see what was
-- committed while it waited for that lock, so it needs the isolation level read committed.
--
-- After a crash there must not be two holders.  Commits are asynchronous, so a crash can lose the last steps; but a crash
-- recovery, and the promotion of a replica, also empties the unlogged table.  The first step that finds it empty stores
-- there that no lock is granted for the grace, the longest time that a lost lease may last.  A longer lease, an eviction,
-- a record of a completed run, and a fence ahead of the clock are on disk before the caller gets the reply.
CREATE TABLE IF NOT EXISTS {table} (
  key bytea NOT NULL,
  number bigint NOT NULL,
  id text NOT NULL DEFAULT '',
  units bigint NOT NULL DEFAULT 0,
  capacity bigint NOT NULL DEFAULT 0,
  ttl bigint NOT NULL DEFAULT 0,
  until bigint NOT NULL DEFAULT 0,
  fence bigint NOT NULL DEFAULT 0,
  top bigint NOT NULL DEFAULT 0,
  since bigint NOT NULL DEFAULT 0,
  held bigint NOT NULL DEFAULT 0,
  slot bigint NOT NULL DEFAULT 0,
  once boolean NOT NULL DEFAULT false,
  done bigint NOT NULL DEFAULT 0,
  value text NOT NULL DEFAULT '',
  channel text NOT NULL DEFAULT '',
  namespace text NOT NULL DEFAULT '',
  name text NOT NULL DEFAULT '',
  home text NOT NULL DEFAULT '',
  who text NOT NULL DEFAULT '',
  label text NOT NULL DEFAULT '',
  PRIMARY KEY (key, number)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- The time from which locks may be granted; empty after a crash.  If two steps insert a row at once, the earlier counts.
-- The creation is committed synchronously: if a crash lost it, the table would be created again without a grace.
DO $$ BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  CREATE UNLOGGED TABLE IF NOT EXISTS {alive} AS SELECT 0::bigint AS open_from;
END $$;

-- Without the index the planner has only a sequential scan, which the functions disable: its cost would start the JIT.
CREATE INDEX IF NOT EXISTS {alive_index} ON {alive} (open_from);

-- Return the time from which locks may be granted: after a crash, when the last lost lease has expired.
CREATE OR REPLACE FUNCTION {opening}(_moment bigint, OUT open_from bigint) LANGUAGE plpgsql AS $$
BEGIN
  SELECT min(a.open_from) INTO open_from FROM {alive} a;
  IF open_from IS NULL THEN
    open_from := _moment + {grace};
    INSERT INTO {alive} VALUES (open_from);
  END IF;
END $$;

-- Make the commit of this transaction synchronous (on disk before the reply), or asynchronous.
CREATE OR REPLACE FUNCTION {durable}(_yes boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT _yes THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  ELSIF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- Lock a name until the transaction ends, and return the time at which the lock was granted.
CREATE OR REPLACE FUNCTION {begin}(_key bytea, OUT moment bigint) LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'IL001', MESSAGE = 'a step of a lock must run at the isolation level read committed';
  END IF;
  PERFORM pg_advisory_xact_lock(('x' || encode(substr(_key, 1, 8), 'hex'))::bit(64)::bigint);
  moment := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
END $$;

-- Update the line of a locked name: remove leaving claims and expired ones, promote waiters for which there is room.
-- `_leaves` is the claim that leaves, '' for none, '*' for all; with `_once` the waiting claims of `once` leave too.
-- Other claims that were promoted, or must look again, are notified.  A commit with a NOTIFY holds a lock of the whole
-- cluster; so if the commit is synchronous (`lasting`, also set by the promotion of a lease longer than the grace), the
-- caller must notify them after the commit.  It also notifies those of its own channel or of none.  These claims are in
-- `told`, one in each line: channel, id, fence, slot.
-- One call removes and promotes at most 1,000 claims, except for '*'. If claims are left, `taken` is null, and the caller
-- requests another step.  Behind the first waiter for which there is no room, only the claim itself and the last one count.
CREATE OR REPLACE FUNCTION {walk}(
  _key bytea, _id text, _leaves text, _once boolean, _own text, moment bigint, open_from bigint,
  OUT taken bigint, OUT most bigint, OUT last bigint, OUT highest bigint, OUT finished bigint,
  OUT place bigint, OUT fence bigint, OUT held bigint, OUT slot bigint, OUT soonest bigint,
  OUT removed bigint, OUT told text, INOUT lasting boolean
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  one record;
  open boolean := open_from <= moment;
  lost bigint := 0;
  leaves boolean;
  left_out boolean := false;
  room integer := 1000;
  messages text[] := ARRAY[]::text[];  -- appending to a text would copy it each time
BEGIN
  taken := 0;
  last := -1;
  highest := 0;
  finished := 0;
  removed := 0;
  FOR one IN
    SELECT l.number, l.id, l.units, l.capacity, l.fence, l.top, l.until, l.held, l.slot, l.once, l.done, l.channel
    FROM {table} l WHERE l.key = _key ORDER BY l.number
  LOOP
    IF one.number = 0 THEN
      last := 0;
      highest := greatest(one.top, one.fence);
      finished := one.done;
    END IF;
    CONTINUE WHEN one.id = '';
    leaves := _leaves = '*' OR _leaves = one.id OR (one.once AND one.held = 0 AND (_once OR finished > moment));
    IF room = 0 AND _leaves <> '*' AND (leaves OR one.until <= moment OR (open AND one.held = 0)) THEN
      taken := NULL;
      left_out := true;
      EXIT;
    END IF;
    IF leaves OR one.until <= moment THEN
      room := room - 1;
      -- A renewal does not lock the name: it may have extended the lease after this row was read.
      IF one.number = 0 THEN
        UPDATE {table} l SET id = '', until = 0, top = greatest(l.top, l.fence)
        WHERE l.key = _key AND l.number = 0 AND (leaves OR l.until <= moment);
      ELSE
        DELETE FROM {table} l WHERE l.key = _key AND l.number = one.number AND (leaves OR l.until <= moment);
      END IF;
      IF FOUND THEN
        lost := greatest(lost, one.fence);
        IF leaves AND one.until > moment THEN
          IF _leaves IN ('*', one.id) THEN
            removed := removed + 1;
          END IF;
          IF one.held = 0 AND one.id <> _id THEN
            IF lasting OR one.channel IN ('', _own) THEN
              messages := messages || (one.channel || ' ' || one.id || ' 0 0' || chr(10));
            ELSE
              PERFORM pg_notify(one.channel, one.id || ' 0 0');
            END IF;
          END IF;
        END IF;
        CONTINUE;
      END IF;
    END IF;
    last := one.number;
    highest := greatest(highest, one.fence);
    taken := taken + one.units;
    most := least(most, one.capacity);
    IF taken > most THEN
      open := false;
    ELSIF open AND one.held = 0 THEN
      room := room - 1;
      one.held := moment;
      one.slot := CASE
        WHEN one.units = 1 AND one.capacity BETWEEN 2 AND 1024 THEN {free_slot}(_key, one.capacity) ELSE 0
      END;
      lasting := lasting OR one.until > moment + {grace};
      UPDATE {table} l SET held = moment, slot = one.slot WHERE l.key = _key AND l.number = one.number;
      IF one.id <> _id THEN
        IF lasting OR one.channel IN ('', _own) THEN
          messages := messages || (one.channel || ' ' || one.id || ' ' || one.fence || ' ' || one.slot || chr(10));
        ELSE
          PERFORM pg_notify(one.channel, one.id || ' ' || one.fence || ' ' || one.slot);
        END IF;
      END IF;
    END IF;
    IF one.id = _id THEN
      place := one.number;
      fence := one.fence;
      held := one.held;
      slot := one.slot;
    ELSIF place IS NULL THEN
      soonest := least(soonest, one.until);
    END IF;
    left_out := taken > most AND _leaves <> '*' AND NOT _once AND finished <= moment;
    EXIT WHEN left_out;
  END LOOP;
  IF left_out THEN
    IF removed = 0 AND _leaves <> '' THEN
      DELETE FROM {table} l WHERE l.key = _key AND l.id = _leaves AND l.number > 0
      RETURNING l.id, l.fence, l.until, l.held, l.channel INTO one;
      IF FOUND THEN
        lost := greatest(lost, one.fence);
        removed := (one.until > moment)::int;
        IF one.held = 0 AND one.id <> _id AND one.until > moment THEN
          messages := messages || (one.channel || ' ' || one.id || ' 0 0' || chr(10));
        END IF;
      END IF;
    ELSIF place IS NULL AND _id <> '' THEN
      SELECT l.number, l.fence, l.held, l.slot INTO place, fence, held, slot
      FROM {table} l WHERE l.key = _key AND l.id = _id AND l.until > moment;
    END IF;
    SELECT l.number, greatest(highest, l.fence) INTO last, highest
    FROM {table} l WHERE l.key = _key ORDER BY l.number DESC LIMIT 1;
  END IF;
  told := array_to_string(messages, '');
  IF lost > highest THEN
    highest := lost;
    INSERT INTO {table} AS l (key, number, top) VALUES (_key, 0, lost)
    ON CONFLICT ON CONSTRAINT {primary} DO UPDATE SET top = greatest(l.top, excluded.top);
  END IF;
END $$;

-- Return the lowest free slot of a semaphore.
CREATE OR REPLACE FUNCTION {free_slot}(_key bytea, _capacity bigint, OUT slot bigint) LANGUAGE plpgsql AS $$
BEGIN
  SELECT min(n) INTO slot FROM generate_series(0, _capacity) n WHERE n NOT IN (
    SELECT l.slot FROM {table} l
    WHERE l.key = _key AND l.id <> '' AND l.held > 0 AND l.units = 1 AND l.capacity BETWEEN 2 AND 1024
  );
END $$;

-- Enter a claim, or return the state of one that entered before.  `_lock` is the first 64 bits of the key; `_mode` is try,
-- wait, or again (it entered before).  The first line of the reply is "state fence slot look_in waited"; the others are
-- `told` of `walk`.  `state` is using, pending, refused, done, gone or, if another step must come before that, more;
-- `look_in` is the time until a lease before it expires, and `waited` the time since it entered, both in microseconds.
CREATE OR REPLACE FUNCTION {enter}(
  _key bytea, _lock bigint, _id text, _mode text, _channel text, _ttl bigint, _units bigint, _capacity bigint,
  _once boolean, _namespace text, _name text, _home text, _who text, _label text
) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  moment bigint;
  state text;
  fence bigint := 0;
  slot bigint := 0;
  look_in bigint;
  waited bigint := 0;
  line record;
  spot bigint;
  open_from bigint;
  lasting boolean;
  _ text;  -- results of no use
BEGIN
  -- As `begin` does, quicker; so is an assignment instead of PERFORM.
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'IL001', MESSAGE = 'a step of a lock must run at the isolation level read committed';
  END IF;
  _ := pg_advisory_xact_lock(_lock);
  moment := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  -- The common case: no holder, no waiter.
  UPDATE {table} AS l
  SET id = _id, units = _units, capacity = _capacity, ttl = _ttl, until = moment + _ttl,
    fence = greatest(l.top + 1, moment), top = greatest(l.top + 1, moment), since = moment, held = moment, slot = 0,
    once = _once, channel = _channel, home = _home, who = _who, label = _label
  WHERE l.key = _key AND l.number = 0 AND l.id = '' AND l.name = _name AND _mode <> 'again'
    AND NOT (_once AND l.done > moment)
    AND NOT EXISTS (SELECT FROM {table} o WHERE o.key = _key AND o.number > 0)
    AND EXISTS (SELECT FROM {alive} a WHERE a.open_from <= moment)
  RETURNING l.fence INTO fence;
  IF FOUND THEN
    IF _ttl > {grace} OR fence > moment THEN
      PERFORM {durable}(true);
    ELSE
      _ := set_config('synchronous_commit', 'off', true);  -- as `durable` does, quicker
    END IF;
    RETURN 'using ' || fence || ' 0 0 0';
  END IF;
  -- The common case of contention: one claim has the lock for itself, so none of the waiters behind it has its turn.
  IF _mode = 'wait' THEN
    SELECT max(l.number) AS last, greatest(max(l.fence), max(l.top)) AS highest, max(l.done) AS finished,
      min(l.until) FILTER (WHERE l.id <> '' AND l.until > moment) AS soonest,
      bool_or(l.held > 0 AND l.units = l.capacity AND l.id <> '' AND l.until > moment) AS alone,
      bool_or(l.id = _id) AS here
    INTO line FROM {table} l WHERE l.key = _key;
    IF line.alone AND NOT line.here AND line.finished <= moment AND line.highest < moment THEN
      INSERT INTO {table} (
        key, number, id, units, capacity, ttl, until, fence, top, since, once, channel, namespace, name, home, who, label
      ) VALUES (
        _key, line.last + 1, _id, _units, _capacity, _ttl, moment + _ttl, moment, moment, moment, _once, _channel,
        _namespace, _name, _home, _who, _label
      );
      _ := set_config('synchronous_commit', 'off', true);
      RETURN 'pending 0 0 ' || line.soonest - moment || ' 0';
    END IF;
  END IF;
  open_from := {opening}(moment);
  line := {walk}(_key, _id, '', false, '', moment, open_from, false);
  fence := 0;
  lasting := line.lasting;
  look_in := coalesce(least(line.soonest, CASE WHEN open_from > moment THEN open_from END) - moment, 0);
  IF line.place IS NOT NULL THEN
    state := CASE WHEN line.held > 0 THEN 'using' ELSE 'pending' END;
    fence := line.fence;
    slot := line.slot;
    UPDATE {table} l
    SET until = greatest(l.until, moment + l.ttl), channel = CASE WHEN _channel = '' THEN l.channel ELSE _channel END
    WHERE l.key = _key AND l.number = line.place
    RETURNING moment - l.since INTO waited;
    lasting := lasting OR (line.held > 0 AND _ttl > {grace});
    IF line.held = 0 AND line.taken IS NULL THEN
      state := 'more';
    END IF;
  ELSIF _mode = 'again' THEN
    state := 'gone';
  ELSIF line.taken IS NULL THEN
    state := 'more';
  ELSIF _once AND line.finished > moment THEN
    state := 'done';
  ELSE
    IF line.taken + _units <= least(line.most, _capacity) AND open_from <= moment THEN
      state := 'using';
      slot := CASE WHEN _units = 1 AND _capacity BETWEEN 2 AND 1024 THEN {free_slot}(_key, _capacity) ELSE 0 END;
    ELSIF _mode = 'try' THEN
      state := 'refused';
    ELSE
      state := 'pending';
    END IF;
    IF state <> 'refused' THEN
      fence := greatest(line.highest + 1, moment);
      lasting := lasting OR fence > moment OR (state = 'using' AND _ttl > {grace});
      spot := CASE WHEN line.taken = 0 THEN 0 ELSE line.last + 1 END;
      INSERT INTO {table} AS l (
        key, number, id, units, capacity, ttl, until, fence, top, since, held, slot, once, channel, namespace, name,
        home, who, label
      ) VALUES (
        _key, spot, _id, _units, _capacity, _ttl, moment + _ttl, fence, fence, moment,
        CASE WHEN state = 'using' THEN moment ELSE 0 END, slot, _once, _channel, _namespace, _name, _home, _who, _label
      ) ON CONFLICT ON CONSTRAINT {primary} DO UPDATE SET
        id = excluded.id, units = excluded.units, capacity = excluded.capacity, ttl = excluded.ttl,
        until = excluded.until, fence = excluded.fence, top = greatest(l.top, excluded.top), since = excluded.since,
        held = excluded.held, slot = excluded.slot, once = excluded.once, channel = excluded.channel,
        namespace = excluded.namespace, name = excluded.name, home = excluded.home, who = excluded.who,
        label = excluded.label;
    END IF;
  END IF;
  PERFORM {durable}(lasting);
  RETURN concat_ws(' ', state, fence, slot, look_in, waited) || chr(10) || line.told;
END $$;

-- Remove a claim and promote waiters; `_evict` if it is another caller's claim, with the id '*' for all claims.  With
-- `_keep` (microseconds) the claim must hold the lock, and its run is recorded as completed for that time, with `_value`;
-- waiting claims of `once` leave then.  The first line of the reply says how many were removed; if another step is needed,
-- 2 is added; for `_evict` the value is then negative, and one less.  The others are `told` of `walk`.
CREATE OR REPLACE FUNCTION {leave}(
  _key bytea, _lock bigint, _id text, _keep bigint, _evict boolean, _own text, _value text
) RETURNS text LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  moment bigint;
  removed bigint := 0;
  open_from bigint;
  before text := '';
  holds boolean := true;
  line record;
  its record;
  _ text;  -- results of no use
BEGIN
  -- As in `enter`.
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'IL001', MESSAGE = 'a step of a lock must run at the isolation level read committed';
  END IF;
  _ := pg_advisory_xact_lock(_lock);
  moment := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  -- The common case: the only holder leaves, no waiter.
  UPDATE {table} AS l
  SET id = '', until = 0, done = CASE WHEN _keep > 0 THEN moment + _keep ELSE l.done END,
    value = CASE WHEN _keep > 0 THEN _value ELSE l.value END
  WHERE l.key = _key AND l.number = 0 AND l.id = _id AND l.until > moment AND l.held > 0 AND NOT _evict
    AND NOT EXISTS (SELECT FROM {table} o WHERE o.key = _key AND o.number > 0);
  IF FOUND THEN
    IF _keep > 0 THEN
      PERFORM {durable}(true);
    ELSE
      _ := set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN '1';
  END IF;
  -- The common case of contention: the first claim leaves, and the next one takes the lock for itself, by a lease that
  -- the grace covers.  While the first one was there, the next one waited.
  IF _keep = 0 AND NOT _evict THEN
    SELECT m.number AS mine, n.number, n.id, n.fence, n.channel INTO line
    FROM (
      SELECT l.number, l.id, l.until FROM {table} l WHERE l.key = _key AND l.id <> '' ORDER BY l.number LIMIT 1
    ) m, LATERAL (
      SELECT l.number, l.id, l.units, l.capacity, l.until, l.fence, l.channel FROM {table} l
      WHERE l.key = _key AND l.number > m.number ORDER BY l.number LIMIT 1
    ) n
    WHERE m.id = _id AND m.until > moment
      AND n.units = n.capacity AND n.until > moment AND n.until <= moment + {grace}
      AND NOT EXISTS (SELECT FROM {table} z WHERE z.key = _key AND z.number = 0 AND z.done > moment)
      AND EXISTS (SELECT FROM {alive} a WHERE a.open_from <= moment);
    IF FOUND THEN
      IF line.mine = 0 THEN
        UPDATE {table} l SET id = '', until = 0 WHERE l.key = _key AND l.number = 0;
      ELSE
        DELETE FROM {table} l WHERE l.key = _key AND l.number = line.mine;
      END IF;
      UPDATE {table} l SET held = moment WHERE l.key = _key AND l.number = line.number;
      _ := set_config('synchronous_commit', 'off', true);
      IF line.channel IN ('', _own) THEN
        RETURN '1' || chr(10) || line.channel || ' ' || line.id || ' ' || line.fence || ' 0';
      END IF;
      _ := pg_notify(line.channel, line.id || ' ' || line.fence || ' 0');
      RETURN '1';
    END IF;
  END IF;
  open_from := {opening}(moment);
  IF _keep > 0 THEN
    line := {walk}(_key, _id, '', false, _own, moment, open_from, true);
    holds := coalesce(line.held > 0, false);
    before := CASE WHEN holds THEN line.told ELSE '' END;
    SELECT l.namespace, l.name INTO its FROM {table} l WHERE l.key = _key AND l.id = _id;
  END IF;
  IF holds THEN
    line := {walk}(
      _key, CASE WHEN _evict THEN '' ELSE _id END, _id, _keep > 0, _own, moment, open_from, _keep > 0 OR _evict
    );
    removed := line.removed;
    IF line.taken IS NULL THEN
      removed := CASE WHEN _evict THEN -1 - removed ELSE removed + 2 END;
    END IF;
    IF _keep > 0 THEN
      INSERT INTO {table} AS l (key, number, done, value, namespace, name)
      VALUES (_key, 0, moment + _keep, _value, its.namespace, its.name)
      ON CONFLICT ON CONSTRAINT {primary} DO UPDATE SET done = excluded.done, value = excluded.value;
    END IF;
  END IF;
  PERFORM {durable}(line.lasting);
  RETURN removed || chr(10) || before || line.told;
END $$;

-- Return '+' and the value of a completed run, or '' without a record; `_forget` deletes the record.
CREATE OR REPLACE FUNCTION {kept}(_key bytea, _forget boolean, OUT value text) LANGUAGE plpgsql AS $$
DECLARE
  moment bigint := {begin}(_key);
BEGIN
  SELECT '+' || l.value INTO value FROM {table} l WHERE l.key = _key AND l.number = 0 AND l.done > moment;
  value := coalesce(value, '');
  IF _forget THEN
    UPDATE {table} l SET done = 0, value = '' WHERE l.key = _key AND l.number = 0 AND l.done > 0;
    PERFORM {durable}(true);
  END IF;
END $$;

-- Give the place of a holder to another id, with its fence and slot; a writer can become a reader by its units.  Return a
-- null fence if the holder is gone; -1 if the same id has waiters to promote in another step.
CREATE OR REPLACE FUNCTION {adopt}(
  _key bytea, _id text, _new text, _channel text, _ttl bigint, _units bigint, _home text, _who text, _label text,
  OUT fence bigint, OUT slot bigint, OUT told text
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  moment bigint := {begin}(_key);
  open_from bigint := {opening}(moment);
  line record;
BEGIN
  line := {walk}(_key, _new, '', false, '', moment, open_from, _ttl > {grace});
  told := line.told;
  IF line.place IS NOT NULL AND _id <> _new THEN  -- an earlier request did it, and its reply was lost
    fence := line.fence;
    slot := line.slot;
  ELSE
    UPDATE {table} l
    SET id = _new, ttl = _ttl, channel = _channel, home = _home, who = _who, label = _label,
      -- A renewal, which does not lock the name, may have extended the lease after `moment`.
      until = greatest(moment + _ttl, CASE WHEN l.id = _new AND l.ttl = _ttl THEN l.until END),
      units = CASE WHEN l.units = l.capacity THEN least(l.units, _units) ELSE l.units END
    WHERE l.key = _key AND l.id = _id AND l.held > 0
    RETURNING l.fence, l.slot INTO fence, slot;
    IF FOUND THEN
      line := {walk}(_key, _new, '', false, '', moment, open_from, line.lasting);
      told := told || line.told;
      IF line.taken IS NULL AND _id = _new THEN
        fence := -1;
      END IF;
    END IF;
  END IF;
  PERFORM {durable}(line.lasting);
END $$;

-- Extend the leases of claims, and return for each that still exists: 1 extended, 2 extended while another claim waits,
-- -1 not extended because another step has locked the row.  No name is locked, so that one name can't delay the others;
-- so nobody is promoted: a waiter polls when a lease before its own expires.
CREATE OR REPLACE FUNCTION {renew}(_keys bytea[], _ids text[])
RETURNS TABLE (id text, renewed bigint) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  extended text[] := ARRAY[]::text[];
  wanted text[] := ARRAY[]::text[];
  longest bigint := 0;
  fresh record;
  held text[];
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'IL001', MESSAGE = 'a step of a lock must run at the isolation level read committed';
  END IF;
  FOR i IN 1..20 LOOP
    WITH found AS (
      SELECT l.key, l.number
      FROM unnest(_keys, _ids) AS w (key, id) JOIN {table} l ON l.key = w.key AND l.id = w.id
      WHERE w.id <> ALL (extended)
      FOR UPDATE OF l SKIP LOCKED
    ), done AS (
      UPDATE {table} l
      SET until = greatest(l.until, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + l.ttl)
      FROM found f
      WHERE l.key = f.key AND l.number = f.number
        AND l.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
      RETURNING l.key, l.id, l.ttl
    )
    SELECT coalesce(array_agg(d.id), ARRAY[]::text[]) AS ids, max(d.ttl) AS ttl, coalesce(array_agg(d.id) FILTER (WHERE
      EXISTS (
        SELECT FROM {table} o
        WHERE o.key = d.key AND o.id <> '' AND o.held = 0
          AND o.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
      )), ARRAY[]::text[]) AS wanted
    INTO fresh FROM done d;
    extended := extended || fresh.ids;
    wanted := wanted || fresh.wanted;
    longest := greatest(longest, fresh.ttl);
    SELECT coalesce(array_agg(l.id), ARRAY[]::text[]) INTO held
    FROM unnest(_keys, _ids) AS w (key, id) JOIN {table} l ON l.key = w.key AND l.id = w.id
    WHERE w.id <> ALL (extended) AND l.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    EXIT WHEN held = ARRAY[]::text[];
    PERFORM pg_sleep(0.002);
  END LOOP;
  PERFORM {durable}(longest > {grace});
  RETURN QUERY
    SELECT e, CASE WHEN e = ANY (wanted) THEN 2 ELSE 1 END::bigint FROM unnest(extended) e
    UNION ALL SELECT h, (-1)::bigint FROM unnest(held) h;
END $$;

-- Delete rows that expired more than `_age` microseconds ago in `_pages` random pages of the table; return how many.  A
-- fence may be deleted when the clock is beyond it, and a record of a completed run when it has expired.
CREATE OR REPLACE FUNCTION {sweep}(_pages bigint, _age bigint, OUT swept bigint) LANGUAGE plpgsql AS $$
DECLARE
  old bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - _age;
  size bigint := pg_relation_size('{table}'::regclass) / current_setting('block_size')::bigint;
  start bigint := floor(random() * greatest(1, size - _pages + 1))::bigint;
BEGIN
  PERFORM {durable}(false);
  DELETE FROM {table} l
  WHERE l.ctid >= ('(' || start || ',0)')::tid AND l.ctid < ('(' || start + _pages || ',0)')::tid
    AND l.until < old AND l.top < old AND l.fence < old AND l.done < old;
  GET DIAGNOSTICS swept = ROW_COUNT;
END $$;

-- Qualify the names in the functions with the schema in which the functions were created, so that every search path
-- works, even an empty one.  Names that `ddl` has qualified do not change.
DO $$
DECLARE
  own text := quote_ident(current_schema());
  definition text;
BEGIN
  FOR definition IN
    SELECT pg_get_functiondef(p.oid) FROM pg_proc p
    WHERE p.pronamespace = own::regnamespace AND p.proname ~ '^{bare}_({parts})$'
  LOOP
    EXECUTE regexp_replace(definition, '(?<!\.)"{bare}(_({parts}))?"', own || '.\&', 'g');
  END LOOP;
END $$;
