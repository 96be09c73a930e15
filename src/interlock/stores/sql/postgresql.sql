-- The lines of all locks, one row a claim, and the functions that take one step each.
--
-- Row 0 of a name stays when nobody holds the lock: its `top` is the highest fence that was issued, and the next claim
-- that finds the line empty takes its place.  So an uncontended lock is two updates of one row, and no index is touched.
-- A row with an empty id is nobody's.  `fence` is 0 while a claim waits.  Times are microseconds of this database's clock.
--
-- Each step locks its name first (pg_advisory_xact_lock), and reads the clock and the line after that.  So it must see
-- what was committed while it waited for the lock: read committed, and no other isolation.
--
-- After a crash there must not be two holders.  Commits are asynchronous, so a crash forgets the last steps; but it also
-- empties the unlogged table, as recovery does, that of a replica which takes over too.  Who finds it empty notes there
-- that nobody is made a holder for as long as a forgotten lease may last, the grace.  A lease that is longer, an
-- eviction, and a fence that runs ahead of the clock are on the disk before the caller hears of them.
CREATE TABLE IF NOT EXISTS {table} (
  key bytea NOT NULL,
  number bigint NOT NULL,
  id text NOT NULL DEFAULT '',
  units bigint NOT NULL DEFAULT 0,
  capacity bigint NOT NULL DEFAULT 0,
  fence bigint NOT NULL DEFAULT 0,
  top bigint NOT NULL DEFAULT 0,
  until bigint NOT NULL DEFAULT 0,
  since bigint NOT NULL DEFAULT 0,
  channel text NOT NULL DEFAULT '',
  namespace text NOT NULL DEFAULT '',
  name text NOT NULL DEFAULT '',
  host text NOT NULL DEFAULT '',
  pid bigint NOT NULL DEFAULT 0,
  thread text NOT NULL DEFAULT '',
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
-- `_leaves` is the claim that leaves, '' for nobody, '*' for all.  `lasting` tells that a promotion must be on the disk.
CREATE OR REPLACE FUNCTION {walk}(
  _key bytea, _id text, _leaves text, moment bigint, open_from bigint,
  OUT taken bigint, OUT most bigint, OUT last bigint, OUT highest bigint,
  OUT place bigint, OUT mine bigint, OUT soonest bigint, OUT removed bigint, OUT told text,
  OUT lasting boolean
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  one record;
  open boolean := open_from <= moment;
  promoted boolean := false;
  leaves boolean;
BEGIN
  taken := 0;
  last := -1;
  highest := 0;
  removed := 0;
  told := '';
  lasting := false;
  FOR one IN
    SELECT l.number, l.id, l.units, l.capacity, l.fence, l.top, l.until, l.channel
    FROM {table} l WHERE l.key = _key ORDER BY l.number
  LOOP
    last := one.number;
    highest := greatest(highest, one.top, one.fence);
    CONTINUE WHEN one.id = '';
    leaves := _leaves = '*' OR _leaves = one.id;
    IF leaves OR one.until <= moment THEN
      -- A renewal takes no lock on the name: it may have extended the lease since this row was read.
      IF one.number = 0 THEN
        UPDATE {table} l SET id = '', until = 0, fence = 0, top = greatest(l.top, l.fence)
        WHERE l.key = _key AND l.number = 0 AND (leaves OR l.until <= moment);
      ELSE
        DELETE FROM {table} l WHERE l.key = _key AND l.number = one.number AND (leaves OR l.until <= moment);
      END IF;
      IF FOUND AND leaves AND one.until > moment THEN
        removed := removed + 1;
        IF one.fence = 0 AND one.id <> _id THEN
          told := told || one.channel || ' ' || one.id || ' 0' || chr(10);
        END IF;
      END IF;
      CONTINUE WHEN FOUND OR leaves;
    END IF;
    taken := taken + one.units;
    most := least(most, one.capacity);
    IF taken > most THEN
      open := false;
    ELSIF open AND one.fence = 0 THEN
      highest := greatest(highest + 1, moment);
      one.fence := highest;
      promoted := true;
      lasting := lasting OR highest > moment OR one.until > moment + {grace};
      UPDATE {table} l SET fence = highest WHERE l.key = _key AND l.number = one.number;
      IF one.id <> _id THEN
        told := told || one.channel || ' ' || one.id || ' ' || highest || chr(10);
      END IF;
    END IF;
    IF one.id = _id THEN
      place := one.number;
      mine := one.fence;
    ELSIF place IS NULL THEN
      soonest := least(soonest, one.until);
    END IF;
  END LOOP;
  IF promoted THEN
    INSERT INTO {table} AS l (key, number, top) VALUES (_key, 0, highest)
    ON CONFLICT ON CONSTRAINT {primary} DO UPDATE SET top = greatest(l.top, excluded.top);
  END IF;
END $$;

-- Ask for the lock, or where a claim stands.  `_mode` is try, wait, or again for one that is known to stand in line.
-- `state` is using, pending, refused or gone; `recheck_after` microseconds until a lease before it ends; `told` has who else
-- was promoted, one a line: channel, id, fence.
CREATE OR REPLACE FUNCTION {enter}(
  _key bytea, _id text, _mode text, _ttl bigint, _units bigint, _capacity bigint, _channel text,
  _namespace text, _name text, _host text, _pid bigint, _thread text, _label text,
  OUT state text, OUT fence bigint, OUT recheck_after bigint, OUT told text
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  moment bigint := {begin}(_key);
  line record;
  spot bigint;
  open_from bigint;
BEGIN
  -- Nobody holds it, nobody waits: most of the time.
  UPDATE {table} AS l
  SET id = _id, units = _units, capacity = _capacity, fence = greatest(l.top + 1, moment),
    top = greatest(l.top + 1, moment), until = moment + _ttl, since = moment, channel = _channel, host = _host,
    pid = _pid, thread = _thread, label = _label
  WHERE l.key = _key AND l.number = 0 AND l.id = '' AND l.name = _name AND _mode <> 'again'
    AND NOT EXISTS (SELECT FROM {table} o WHERE o.key = _key AND o.number > 0)
    AND EXISTS (SELECT FROM {alive} a WHERE a.open_from <= moment)
  RETURNING l.fence INTO fence;
  IF FOUND THEN
    state := 'using';
    told := '';
    PERFORM {durable}(_ttl > {grace} OR fence > moment);
    RETURN;
  END IF;
  open_from := {opening}(moment);
  line := {walk}(_key, _id, '', moment, open_from);
  told := line.told;
  fence := 0;
  recheck_after := least(line.soonest, CASE WHEN open_from > moment THEN open_from END) - moment;
  IF line.place IS NOT NULL THEN
    fence := line.mine;
    state := CASE WHEN fence > 0 THEN 'using' ELSE 'pending' END;
    UPDATE {table} l
    SET until = greatest(l.until, moment + _ttl), channel = CASE WHEN _channel = '' THEN l.channel ELSE _channel END
    WHERE l.key = _key AND l.number = line.place;
  ELSIF _mode = 'again' THEN
    state := 'gone';
  ELSE
    IF line.taken + _units <= least(line.most, _capacity) AND open_from <= moment THEN
      state := 'using';
      fence := greatest(line.highest + 1, moment);
    ELSIF _mode = 'try' THEN
      state := 'refused';
    ELSE
      state := 'pending';
    END IF;
    IF state <> 'refused' THEN
      spot := CASE WHEN line.taken = 0 THEN 0 ELSE line.last + 1 END;
      INSERT INTO {table} AS l (
        key, number, id, units, capacity, fence, top, until, since, channel, namespace, name, host, pid, thread, label
      ) VALUES (
        _key, spot, _id, _units, _capacity, fence, fence, moment + _ttl, moment, _channel, _namespace, _name,
        _host, _pid, _thread, _label
      ) ON CONFLICT ON CONSTRAINT {primary} DO UPDATE SET
        id = excluded.id, units = excluded.units, capacity = excluded.capacity, fence = excluded.fence,
        top = greatest(l.top, excluded.top), until = excluded.until, since = excluded.since, channel = excluded.channel,
        namespace = excluded.namespace, name = excluded.name, host = excluded.host, pid = excluded.pid,
        thread = excluded.thread, label = excluded.label;
      IF spot > 0 AND fence > 0 THEN
        INSERT INTO {table} AS l (key, number, top) VALUES (_key, 0, fence)
        ON CONFLICT ON CONSTRAINT {primary} DO UPDATE SET top = greatest(l.top, excluded.top);
      END IF;
    END IF;
  END IF;
  PERFORM {durable}(line.lasting OR fence > moment OR (fence > 0 AND _ttl > {grace}));
END $$;

-- Take a claim out of the line and promote whose turn comes by that; `_evict` if it is not the caller's own, with
-- '*' for all of the name.  Whoever listens on another channel than the caller's is told here, and so is not in `told`: a
-- NOTIFY holds a lock of the whole cluster during its commit, which is short but for those that are on the disk.
CREATE OR REPLACE FUNCTION {leave}(
  _key bytea, _id text, _evict boolean, _channel text, OUT removed bigint, OUT told text
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  moment bigint := {begin}(_key);
  line record;
  other record;
BEGIN
  -- The only holder leaves, nobody waits: most of the time.
  UPDATE {table} AS l SET id = '', until = 0, fence = 0
  WHERE l.key = _key AND l.number = 0 AND l.id = _id AND l.until > moment AND l.fence > 0 AND NOT _evict
    AND NOT EXISTS (SELECT FROM {table} o WHERE o.key = _key AND o.number > 0);
  IF FOUND THEN
    removed := 1;
    told := '';
    PERFORM {durable}(false);
    RETURN;
  END IF;
  line := {walk}(_key, CASE WHEN _evict THEN '' ELSE _id END, _id, moment, {opening}(moment));
  removed := line.removed;
  told := line.told;
  PERFORM {durable}(_evict OR line.lasting);
  IF told <> '' AND NOT (_evict OR line.lasting) THEN
    told := '';
    FOR other IN
      SELECT split_part(w, ' ', 1) AS channel, w AS words FROM unnest(string_to_array(line.told, chr(10))) w WHERE w <> ''
    LOOP
      IF other.channel IN ('', _channel) THEN
        told := told || other.words || chr(10);
      ELSE
        PERFORM pg_notify(other.channel, substr(other.words, length(other.channel) + 2));
      END IF;
    END LOOP;
  END IF;
END $$;

-- Extend the leases of claims, and return of each that still is there whether it was extended (1), or could not be,
-- because another step is at it (0).  No name is locked: one that is held up must not hold up the others.
CREATE OR REPLACE FUNCTION {renew}(_keys bytea[], _ids text[], _ttls bigint[])
RETURNS TABLE (id text, renewed bigint) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  extended text[] := ARRAY[]::text[];
  fresh text[];
  held text[];
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = 'IL001', MESSAGE = 'a step of a lock must run at the isolation level read committed';
  END IF;
  FOR i IN 1..20 LOOP
    WITH found AS (
      SELECT l.key, l.number, w.ttl
      FROM unnest(_keys, _ids, _ttls) AS w (key, id, ttl) JOIN {table} l ON l.key = w.key AND l.id = w.id
      WHERE w.id <> ALL (extended)
      FOR UPDATE OF l SKIP LOCKED
    ), done AS (
      UPDATE {table} l
      SET until = greatest(l.until, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + f.ttl)
      FROM found f
      WHERE l.key = f.key AND l.number = f.number
        AND l.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
      RETURNING l.id
    )
    SELECT coalesce(array_agg(d.id), ARRAY[]::text[]) INTO fresh FROM done d;
    extended := extended || fresh;
    SELECT coalesce(array_agg(l.id), ARRAY[]::text[]) INTO held
    FROM unnest(_keys, _ids) AS w (key, id) JOIN {table} l ON l.key = w.key AND l.id = w.id
    WHERE w.id <> ALL (extended) AND l.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    EXIT WHEN held = ARRAY[]::text[];
    PERFORM pg_sleep(0.002);
  END LOOP;
  PERFORM {durable}((SELECT max(ttl) > {grace} FROM unnest(_ttls) ttl));
  RETURN QUERY SELECT e, 1::bigint FROM unnest(extended) e UNION ALL SELECT h, 0::bigint FROM unnest(held) h;
END $$;

-- Delete what is over since `_age` microseconds in a part of the table, in pages, and return how many rows.  The fence
-- of a name may be forgotten when the clock is beyond it.
CREATE OR REPLACE FUNCTION {sweep}(_pages bigint, _age bigint, OUT swept bigint) LANGUAGE plpgsql AS $$
DECLARE
  old bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - _age;
  size bigint := pg_relation_size('{table}'::regclass) / current_setting('block_size')::bigint;
  start bigint := floor(random() * greatest(1, size - _pages + 1))::bigint;
BEGIN
  PERFORM {durable}(false);
  DELETE FROM {table} l
  WHERE l.ctid >= ('(' || start || ',0)')::tid AND l.ctid < ('(' || start + _pages || ',0)')::tid
    AND l.until < old AND l.top < old AND l.fence < old;
  GET DIAGNOSTICS swept = ROW_COUNT;
END $$;
