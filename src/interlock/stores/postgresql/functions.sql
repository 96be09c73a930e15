-- The lines of all locks, one row a claim, and the functions that take one step each: `interlock.core.line` in PL/pgSQL.
--
-- Row 0 of a name stays when nobody holds the lock: its `top` is the highest fence that was issued, `done` the end of the
-- record of a completed run and `value` what that left, and the next claim that finds the line empty takes its place.  So an uncontended lock is two
-- updates of one row, and no index is touched.  A row with an empty id is nobody's.  `held` is 0 while a claim waits; its
-- fence was issued when it came.  Times are microseconds of this database's clock.
--
-- Each step locks its name first (pg_advisory_xact_lock), and reads the clock and the line after that.  So it must see
-- what was committed while it waited for the lock: read committed, and no other isolation.
--
-- After a crash there must not be two holders.  Commits are asynchronous, so a crash forgets the last steps; but it also
-- empties the unlogged table, as recovery does, that of a replica which takes over too.  Who finds it empty notes there
-- that nobody is made a holder for as long as a forgotten lease may last, the grace.  A lease that is longer, an eviction,
-- a record of a completed run, and a fence that runs ahead of the clock are on the disk before the caller hears of them.
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

-- From when on somebody may be made a holder; empty after a crash.  Of rows that were written at the same time any will do.
-- On the disk at once: a crash that undoes it would let it be made anew, without a grace.
DO $$ BEGIN
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  CREATE UNLOGGED TABLE IF NOT EXISTS {alive} AS SELECT 0::bigint AS open_from;
END $$;
-- Without it the planner has but a sequential scan, which the functions forbid: so dear that it would be compiled.
CREATE INDEX IF NOT EXISTS {alive_index} ON {alive} (open_from);

-- Return from when on somebody may be made a holder: after a crash, when the last lease that it forgot has ended.
CREATE OR REPLACE FUNCTION {opening}(_moment bigint, OUT open_from bigint) LANGUAGE plpgsql AS $$
BEGIN
  SELECT min(a.open_from) INTO open_from FROM {alive} a;
  IF open_from IS NULL THEN
    open_from := _moment + {grace};
    INSERT INTO {alive} VALUES (open_from);
  END IF;
END $$;

-- Let this transaction be on the disk when its commit is answered, or not.
CREATE OR REPLACE FUNCTION {durable}(_yes boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT _yes THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  ELSIF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- Lock a name until the transaction ends, and return the time after that.
CREATE OR REPLACE FUNCTION {begin}(_key bytea, OUT moment bigint) LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'IL001', MESSAGE = 'a step of a lock must run at the isolation level read committed';
  END IF;
  PERFORM pg_advisory_xact_lock(('x' || encode(substr(_key, 1, 8), 'hex'))::bit(64)::bigint);
  moment := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
END $$;

-- Bring the line of a locked name up to date: remove who leaves and whose lease has ended, promote whose turn has come.
-- `_leaves` is the claim that leaves, '' for nobody, '*' for all; `_once` lets waiting claims of `once` leave too.
-- Who else was promoted, or is to look again, is notified.  A NOTIFY holds a lock of the whole cluster during its commit;
-- so where that waits for the disk (`lasting`, and what promotes a lease that is longer than the grace) the caller tells,
-- after it, and so it does those of its own channel, or of none: they are in `told`, one a line, channel, id, fence, slot.
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
BEGIN
  taken := 0;
  last := -1;
  highest := 0;
  finished := 0;
  removed := 0;
  told := '';
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
    leaves := _leaves = '*' OR _leaves = one.id OR (_once AND one.once AND one.held = 0);
    IF leaves OR one.until <= moment THEN
      -- A renewal takes no lock on the name: it may have extended the lease since this row was read.
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
              told := told || one.channel || ' ' || one.id || ' 0 0' || chr(10);
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
      one.held := moment;
      one.slot := CASE
        WHEN one.units = 1 AND one.capacity BETWEEN 2 AND 1024 THEN {free_slot}(_key, one.capacity) ELSE 0
      END;
      lasting := lasting OR one.until > moment + {grace};
      UPDATE {table} l SET held = moment, slot = one.slot WHERE l.key = _key AND l.number = one.number;
      IF one.id <> _id THEN
        IF lasting OR one.channel IN ('', _own) THEN
          told := told || one.channel || ' ' || one.id || ' ' || one.fence || ' ' || one.slot || chr(10);
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
  END LOOP;
  IF lost > highest THEN
    highest := lost;
    INSERT INTO {table} AS l (key, number, top) VALUES (_key, 0, lost)
    ON CONFLICT ON CONSTRAINT {primary} DO UPDATE SET top = greatest(l.top, excluded.top);
  END IF;
END $$;

-- Return the lowest number that no holder of a semaphore has.
CREATE OR REPLACE FUNCTION {free_slot}(_key bytea, _capacity bigint, OUT slot bigint) LANGUAGE plpgsql AS $$
BEGIN
  SELECT min(n) INTO slot FROM generate_series(0, _capacity) n WHERE n NOT IN (
    SELECT l.slot FROM {table} l
    WHERE l.key = _key AND l.id <> '' AND l.held > 0 AND l.units = 1 AND l.capacity BETWEEN 2 AND 1024
  );
END $$;

-- Ask for the lock, or where a claim stands.  `_mode` is try, wait, or again for one that is known to stand in line.
-- `state` is using, pending, refused, done or gone; `look_in` microseconds until a lease before it ends, `waited` since it
-- came.
CREATE OR REPLACE FUNCTION {enter}(
  _key bytea, _id text, _mode text, _channel text, _ttl bigint, _units bigint, _capacity bigint, _once boolean,
  _namespace text, _name text, _home text, _who text, _label text,
  OUT state text, OUT fence bigint, OUT slot bigint, OUT look_in bigint, OUT waited bigint, OUT told text
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  moment bigint := {begin}(_key);
  line record;
  spot bigint;
  open_from bigint;
  lasting boolean;
BEGIN
  slot := 0;
  look_in := 0;
  waited := 0;
  told := '';
  -- Nobody holds it, nobody waits: most of the time.
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
    state := 'using';
    IF _ttl > {grace} OR fence > moment THEN
      PERFORM {durable}(true);
    ELSE
      PERFORM set_config('synchronous_commit', 'off', true);  -- as `durable` does, quicker
    END IF;
    RETURN;
  END IF;
  open_from := {opening}(moment);
  line := {walk}(_key, _id, '', false, '', moment, open_from, false);
  told := line.told;
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
  ELSIF _mode = 'again' THEN
    state := 'gone';
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
END $$;

-- Take a claim out of the line and promote whose turn comes by that; `_evict` if it is not the caller's own, with '*' for
-- all of the name.  With `_keep` it must hold the lock, and a record is kept for so long that its run was completed:
-- claims of `once` do not wait on.  `_value` is kept with it.
CREATE OR REPLACE FUNCTION {leave}(
  _key bytea, _id text, _keep bigint, _evict boolean, _own text, _value text, OUT removed bigint, OUT told text
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  moment bigint := {begin}(_key);
  open_from bigint;
  before text := '';
  holds boolean := true;
  line record;
  its record;
BEGIN
  told := '';
  -- The only holder leaves, nobody waits: most of the time.
  UPDATE {table} AS l
  SET id = '', until = 0, done = CASE WHEN _keep > 0 THEN moment + _keep ELSE l.done END,
    value = CASE WHEN _keep > 0 THEN _value ELSE l.value END
  WHERE l.key = _key AND l.number = 0 AND l.id = _id AND l.until > moment AND l.held > 0 AND NOT _evict
    AND NOT EXISTS (SELECT FROM {table} o WHERE o.key = _key AND o.number > 0);
  IF FOUND THEN
    removed := 1;
    IF _keep > 0 THEN
      PERFORM {durable}(true);
    ELSE
      PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN;
  END IF;
  open_from := {opening}(moment);
  IF _keep > 0 THEN
    line := {walk}(_key, _id, '', false, _own, moment, open_from, true);
    holds := coalesce(line.held > 0, false);
    before := CASE WHEN holds THEN line.told ELSE '' END;
    SELECT l.namespace, l.name INTO its FROM {table} l WHERE l.key = _key AND l.id = _id;
  END IF;
  removed := 0;
  IF holds THEN
    line := {walk}(
      _key, CASE WHEN _evict THEN '' ELSE _id END, _id, _keep > 0, _own, moment, open_from, _keep > 0 OR _evict
    );
    removed := line.removed;
    IF _keep > 0 THEN
      INSERT INTO {table} AS l (key, number, done, value, namespace, name)
      VALUES (_key, 0, moment + _keep, _value, its.namespace, its.name)
      ON CONFLICT ON CONSTRAINT {primary} DO UPDATE SET done = excluded.done, value = excluded.value;
    END IF;
  END IF;
  told := before || line.told;
  PERFORM {durable}(line.lasting);
END $$;

-- Return '+' and what a completed run left, or '' if no record of one is kept; `_forget` to forget the record.
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

-- Let a claim that holds the lock go on under another id, with its fence and slot; a null fence if it is gone.
CREATE OR REPLACE FUNCTION {adopt}(
  _key bytea, _id text, _new text, _channel text, _ttl bigint, _home text, _who text, _label text,
  OUT fence bigint, OUT slot bigint, OUT told text
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  moment bigint := {begin}(_key);
  line record;
BEGIN
  line := {walk}(_key, _new, '', false, '', moment, {opening}(moment), _ttl > {grace});
  IF line.place IS NOT NULL AND _id <> _new THEN  -- it was done, and the reply was lost
    fence := line.fence;
    slot := line.slot;
  ELSE
    UPDATE {table} l
    SET id = _new, ttl = _ttl, until = moment + _ttl, channel = _channel, home = _home, who = _who, label = _label
    WHERE l.key = _key AND l.id = _id AND l.held > 0
    RETURNING l.fence, l.slot INTO fence, slot;
  END IF;
  told := line.told;
  PERFORM {durable}(line.lasting);
END $$;

-- Extend the leases of claims, and return of each that still is there whether it was extended (1), also while somebody
-- waits (2), or could not be, because another step is at it (-1).  No name is locked: one that is held up must not hold up
-- the others.
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

-- Delete what is over since `_age` microseconds in a part of the table, in pages, and return how many rows.  The fence
-- of a name may be forgotten when the clock is beyond it, the record of a completed run when it has ended.
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
