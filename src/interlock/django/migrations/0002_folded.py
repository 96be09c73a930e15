"""Functions of PostgreSQL that take a step of a line in one statement; other databases need nothing."""

from typing import Any

from django.db import migrations

# Each function locks the line (pg_advisory_xact_lock), and reads the clock and the line after that, so that it sees
# what was committed while it waited: at another level than read committed it does nothing.  Who has locked a line
# waits for no row.
#
# The states are compared by order (done < pending < queued < using), for which an index serves; for IN it may not.
#
# Processes that do not use the functions, as before this migration, may be there at the same time.  They insert their
# record, and look at the others' in a statement after that.  The trigger puts each insertion before or after a whole
# step of a function, so that of two claims at least one sees the other.  A newcomer lets all who wait go first; who
# is promoted here is before all who wait behind it, and they see that too.
FORWARDS = r"""
CREATE OR REPLACE FUNCTION interlock_claim_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(NEW.key, 1414));
  RETURN NEW;
END $$;

DROP TRIGGER IF EXISTS interlock_claim_inserted ON interlock_claim;
CREATE TRIGGER interlock_claim_inserted BEFORE INSERT ON interlock_claim
FOR EACH ROW EXECUTE FUNCTION interlock_claim_inserted();

-- Ask for the lock.  `state` is using, pending, refused (nothing was written), or unfolded: to be asked step by step.
-- `clean` is true if no holder before it has let its lease end, who might still be committing.
CREATE OR REPLACE FUNCTION interlock_claim_enter(
  _key text, _id text, _wait boolean, _namespace text, _name text, _units bigint, _capacity bigint, _readers bigint,
  _host text, _pid bigint, _thread text, _label text, _since bigint, _ttl bigint,
  OUT state text, OUT fence bigint, OUT clean boolean
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  moment bigint;
  taken numeric;
  most bigint;
  waiting bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    state := 'unfolded';
    RETURN;
  END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended(_key, 1414));
  moment := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  SELECT coalesce(sum(c.units) FILTER (WHERE c.until > moment), 0), min(c.capacity) FILTER (WHERE c.until > moment),
    count(*) FILTER (WHERE c.until > moment AND c.state <> 'using'),
    count(*) FILTER (WHERE c.until <= moment AND c.state = 'using') = 0
  INTO taken, most, waiting, clean
  FROM interlock_claim c WHERE c.key = _key AND c.state > 'done' AND c.id <> _id;
  IF taken + _units <= least(most, _capacity) AND (waiting = 0 OR least(most, _capacity) = _readers) THEN
    state := 'using';
    fence := greatest(
      moment,
      1 + (SELECT c.fence FROM interlock_claim c WHERE c.key = _key AND c.fence > 0 ORDER BY c.fence DESC LIMIT 1),
      1 + (SELECT c.fence FROM interlock_claim c WHERE c.id = 'floor')
    );
  ELSIF NOT _wait THEN
    state := 'refused';
    RETURN;
  ELSE
    state := 'pending';
  END IF;
  INSERT INTO interlock_claim AS c (
    id, key, namespace, name, state, units, capacity, fence, host, pid, thread, label, since, until
  ) VALUES (
    _id, _key, _namespace, _name, CASE WHEN waiting > 0 AND state = 'pending' THEN 'queued' ELSE state END,
    _units, _capacity, fence, _host, _pid, _thread, _label, _since, moment + _ttl
  ) ON CONFLICT (id) DO NOTHING;
  IF NOT FOUND THEN
    state := 'unfolded';
  END IF;
END $$;

-- Take a claim out of the line that still lives, and promote whose turn comes by that.  `removed` is false if nothing
-- was done: it is gone, or its lease has ended.
-- `told` has who was promoted, one a line: id, fence; with the fence 0 one that is to look by itself.  Those that are
-- not in `_here`, the waiters of the caller's process, are told by NOTIFY, which costs nothing where nobody waits.
CREATE OR REPLACE FUNCTION interlock_claim_leave(
  _key text, _id text, _here text[], OUT removed boolean, OUT told text
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  moment bigint;
  one record;
  used numeric;
  taken numeric;
  most bigint;
  clean boolean;
  promoted boolean;
  issued bigint;
  message text;
BEGIN
  told := '';
  removed := false;
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RETURN;
  END IF;
  -- Before the line is locked: a transaction that is being committed may keep the claim for long.
  UPDATE interlock_claim c SET state = 'done', until = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
  WHERE c.id = _id AND c.state = 'using' AND c.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  IF NOT FOUND THEN
    DELETE FROM interlock_claim c WHERE c.id = _id AND c.state IN ('pending', 'queued')
    AND c.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    IF NOT FOUND THEN
      RETURN;
    END IF;
  END IF;
  removed := true;
  PERFORM pg_advisory_xact_lock(hashtextextended(_key, 1414));
  moment := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  FOR one IN
    SELECT c.number, c.id, c.units, c.capacity FROM interlock_claim c
    WHERE c.key = _key AND c.state > 'done' AND c.state < 'using' AND c.until > moment ORDER BY c.number
  LOOP
    SELECT coalesce(sum(c.units) FILTER (WHERE c.state = 'using' AND c.until > moment), 0),
      coalesce(sum(c.units) FILTER (WHERE c.until > moment), 0), min(c.capacity) FILTER (WHERE c.until > moment),
      count(*) FILTER (WHERE c.until <= moment AND c.state = 'using') = 0
    INTO used, taken, most, clean
    FROM interlock_claim c WHERE c.key = _key AND c.state > 'done' AND c.state <> 'queued' AND c.id <> one.id;
    EXIT WHEN used + one.units > least(most, one.capacity);
    promoted := false;
    IF taken + one.units <= least(most, one.capacity) THEN  -- else somebody is about to lower its flag
      issued := greatest(
        moment,
        1 + (SELECT c.fence FROM interlock_claim c WHERE c.key = _key AND c.fence > 0 ORDER BY c.fence DESC LIMIT 1),
        1 + (SELECT c.fence FROM interlock_claim c WHERE c.id = 'floor')
      );
      -- One that is locked leaves, or has its lease extended: it is not waited for.
      UPDATE interlock_claim c SET state = 'using', fence = issued
      WHERE c.number = (
        SELECT o.number FROM interlock_claim o
        WHERE o.number = one.number AND o.state IN ('pending', 'queued') FOR UPDATE SKIP LOCKED
      ) AND c.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
      promoted := FOUND;
    END IF;
    message := one.id || ' ' || CASE WHEN promoted AND clean THEN issued ELSE 0 END;
    told := told || message || chr(10);
    IF one.id <> ALL (_here) THEN
      PERFORM pg_notify('interlock_claim', message);
    END IF;
    EXIT WHEN NOT promoted;
  END LOOP;
  -- A crash may forget that a claim has left, whose lease then ends later; it may not forget who was promoted.
  IF told = '' AND current_setting('synchronous_commit') <> 'off' THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
END $$;
"""

BACKWARDS = """
DROP TRIGGER IF EXISTS interlock_claim_inserted ON interlock_claim;
DROP FUNCTION IF EXISTS interlock_claim_leave(text, text, text[]);
DROP FUNCTION IF EXISTS interlock_claim_enter(
  text, text, boolean, text, text, bigint, bigint, bigint, text, bigint, text, text, bigint, bigint
);
DROP FUNCTION IF EXISTS interlock_claim_inserted();
"""


class RunOnPostgreSQL(migrations.RunSQL):
    """SQL for PostgreSQL; nothing elsewhere."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)


class Migration(migrations.Migration):
    dependencies = [("interlock", "0001_claims")]

    operations = [RunOnPostgreSQL(FORWARDS, BACKWARDS, hints={"model_name": "claim"})]
