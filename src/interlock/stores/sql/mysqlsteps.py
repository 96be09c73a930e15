"""The steps of a line on MySQL and MariaDB, as statements that commit by themselves.

A name is one row, which has its whole line as text. A step reads the row, decides here, and swaps the row if nobody
has done so since (`version`). So no transaction is open between two statements: whoever is stopped in the middle of a
step holds up nobody, there is nothing that an isolation level could hide, and no step can be a deadlock of two rows.
Taking a free lock, and leaving it with nobody else there, which is most of the time, are one statement each.

Times are microseconds of the server's clock in UTC, as of the beginning of the statement. If that then waited for the
row, a lease ends a little earlier than it might, and others' are judged a little later: both err on the safe side.

All values are written as hexadecimal literals: neither a character set nor an sql_mode changes what they are.
"""

import secrets
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

from interlock.core.claims import SEPARATOR, Claim
from interlock.stores.sql.linetext import (
    DIGITS,
    Line,
    LinePlace,
    LineStep,
    about,
    enter,
    is_of,
    leave,
    mark,
    places_in,
    renew,
    text_of,
)  # fmt: skip
from interlock.stores.sql.mysql import NOW, TABLE, Done, Facts, Statements, Talk, checked_table
from interlock.stores.sql.problems import Passing, Refused
from interlock.stores.sql.statements import hashed, micros

DUPLICATE = "1062"
NOT_YET = "not yet"  # the code of our own refusal after a restart
PAGE = 64  # rows that one sweep looks at
ROUNDS = 20  # of a renewal, while rows are locked
PAUSE = "DO SLEEP(0.002)"  # between them
_FENCE = f"GREATEST(top + 1, {NOW})"


def _hex(value: bytes | str) -> str:
    return f"X'{(value.encode() if isinstance(value, str) else value).hex()}'"


@lru_cache(4096)
def _key(key: str) -> str:
    return _hex(hashed(key))


def _digits(number: str) -> str:
    return f"LPAD({number}, {DIGITS}, '0')"


class MysqlTexts:
    """The steps on one table, as `Texts`.

    Args:
        table: its name.
    """

    def __init__(self, table: str = TABLE) -> None:
        self.table = f"`{checked_table(table)}`"
        self._select = f"SELECT line, top, version, {NOW} FROM {self.table} WHERE k = "

    def start_afresh(self) -> None:
        """In a forked child: nothing is kept of the parent."""

    # -- enter -------------------------------------------------------------------------------------------

    def enter(self, claim: Claim, mode: str, channel: str) -> Statements:
        """Ask for the lock; `mode` is try, wait or again."""
        return Statements(lambda facts: self._enter(claim, mode, channel, facts))

    def _enter(self, claim: Claim, mode: str, channel: str, facts: Facts) -> Talk:
        ttl = micros(claim.spec.ttl)
        if claim.spec.ttl > facts.longest:
            raise Refused(f"a lease of {claim.spec.ttl:g} s is too long for this server: {facts.hint}")
        if not facts.may_grant:
            error = Passing(f"this server was started just now, and may have forgotten who holds what: {facts.hint}")
            error.code = NOT_YET
            raise error
        # A claim that comes to wait was refused a moment ago.
        if mode == "try" and claim.spec.units <= claim.spec.capacity:
            done = yield self._take(claim, ttl)
            if done.affected:
                return [("using", done.insert_id, None, "", True, 0)]
        return [(yield from self._swap(claim.spec.key, lambda line: enter(line, claim, ttl, mode, channel)))]

    def _take(self, claim: Claim, ttl: int) -> str:
        """Take a lock that nobody holds or waits for."""
        spec = claim.spec
        return (
            f"UPDATE {self.table} SET line = CONCAT({_hex(mark(claim.id))}, {_digits(f'{NOW} + {ttl}')}, ' ', "
            f"{_digits(_FENCE)}, ' {spec.units} {spec.capacity} ', {NOW}, {_hex(about(claim))}), "
            f"version = version + 1, top = LAST_INSERT_ID({_FENCE}) WHERE k = {_key(spec.key)} AND line = ''"
        )  # top comes last, as what stands behind sees the new one, or the old one: SIMULTANEOUS_ASSIGNMENT

    def _swap(self, key: str, step: Callable[[Line], LineStep]) -> Generator[str, Done, tuple[object, ...]]:
        """Do a step on the row of a name, again and again until nobody else came in between."""
        while True:
            found = (yield self._select + _key(key)).rows
            line = _line(*found[0]) if found else Line((), 0, 0, 0)
            if not found:
                line = line._replace(now=int((yield f"SELECT {NOW}").rows[0][0]))
            made = step(line)
            if made.line is None:
                return made.answer
            try:
                done = yield self._write(key, made.line)
            except Refused as error:
                if error.code != DUPLICATE:
                    raise
            else:
                if done.affected:
                    return made.answer

    def _write(self, key: str, line: Line) -> str:
        text = _hex(text_of(line.places))
        if line.version:
            return (
                f"UPDATE {self.table} SET line = {text}, top = {line.top}, version = version + 1 "
                f"WHERE k = {_key(key)} AND version = {line.version}"
            )
        namespace, name = (_hex(each) for each in is_of(key))
        # A version that no row of this name has had: a swap of one that was swept away must not succeed on another.
        return (
            f"INSERT INTO {self.table} (k, line, top, version, namespace, name) "
            f"VALUES ({_key(key)}, {text}, {line.top}, {line.now}, {namespace}, {name})"
        )

    # -- leave -------------------------------------------------------------------------------------------

    def leave(self, key: str, id: str, evict: bool = False) -> Statements:
        """Take a claim out of the line; `*` stands for all."""
        return Statements(lambda facts: self._leave(key, id, evict, facts))

    def _leave(self, key: str, id: str, evict: bool, facts: Facts) -> Talk:
        if not evict:
            begin = mark(id)
            done = yield (
                f"UPDATE {self.table} SET line = '', version = version + 1 WHERE k = {_key(key)} "
                f"AND LOCATE({_hex(begin)}, line) = 1 AND LOCATE('\n', line, 2) = 0 "
                f"AND SUBSTRING(line, {len(begin) + 1}, {DIGITS}) > {_digits(NOW)}"
            )
            if done.affected:
                return [(1, "")]
        return [(yield from self._swap(key, lambda line: leave(line, id, facts.may_grant)))]

    # -- renew -------------------------------------------------------------------------------------------

    def renew(self, claims: Sequence[Claim]) -> Statements:
        """Extend leases; an attempt that gets no answer must leave time for others before the first of them ends."""
        soonest = min(claim.spec.ttl / 3 for claim in claims)
        return Statements(lambda facts: self._renew(claims), soonest, reserved=True)

    def _renew(self, claims: Sequence[Claim]) -> Talk:
        left: dict[str, list[Claim]] = {}
        # In the order of the rows: two renewals must not wait for each other.
        for claim in sorted(claims, key=lambda claim: hashed(claim.spec.key)):
            left.setdefault(claim.spec.key, []).append(claim)
        answers: list[Any] = []
        for _ in range(ROUNDS):
            free = yield from self._unlocked(left)
            answers += yield from self._renew_free([left.pop(key) for key in free])
            alive = (yield from self._alive(left)) if left else set()
            left = {key: here for key, some in left.items() if (here := [each for each in some if each.id in alive])}
            if not left:
                return answers
            yield PAUSE
        return answers + [(claim.id, 0) for some in left.values() for claim in some]

    def _unlocked(self, keys: Iterable[str]) -> Generator[str, Done, list[str]]:
        """Return those whose rows nobody has locked: one that is held up must not hold up the others."""
        by_row = {hashed(key): key for key in keys}
        wanted = ", ".join(map(_key, keys))
        # By the index, however few rows there are: a scan would lock those of others for a moment.
        rows = f"{self.table} FORCE INDEX (PRIMARY) WHERE k IN ({wanted})"
        found = (yield f"SELECT k FROM {rows} FOR UPDATE SKIP LOCKED").rows
        return [by_row[row] for row in sorted(_bytes(row) for (row,) in found)]

    def _alive(self, keys: Iterable[str]) -> Generator[str, Done, set[str]]:
        """Return the ids of the live claims of some names."""
        wanted = ", ".join(map(_key, keys))
        found = (yield f"SELECT line, {NOW} FROM {self.table} WHERE k IN ({wanted})").rows
        return {place.id for text, now in found for place in places_in(_bytes(text)) if place.until > int(now)}

    def _renew_free(self, lines: Sequence[Sequence[Claim]]) -> Talk:
        """Extend leases in rows that are not locked: those with one lease in one statement, the others by a swap."""
        single = [some[0] for some in lines if len(some) == 1]
        answers: list[Any] = []
        if single:
            done = yield self._extend(single)
            ids = {claim.id for claim in single}
            if done.affected < len(single):
                ids &= yield from self._alive([claim.spec.key for claim in single])
            answers += [(id, 1) for id in ids]
        for some in lines:
            if len(some) > 1:
                leases = {claim.id: micros(claim.spec.ttl) for claim in some}
                alive = yield from self._swap(some[0].spec.key, partial(renew, leases=leases))
                answers += [(id, 1) for id in alive]
        return answers

    def _extend(self, claims: Sequence[Claim]) -> str:
        wanted = " UNION ALL ".join(
            f"SELECT {_key(claim.spec.key)} AS k, {_hex(mark(claim.id))} AS mark, {micros(claim.spec.ttl)} AS ttl"
            for claim in claims
        )
        # By the index, as above: MariaDB scans a table of few rows, and waits for one that others have locked.
        spot = "LOCATE(w.mark, l.line) + LENGTH(w.mark)"
        until = f"SUBSTRING(l.line, {spot}, {DIGITS})"
        return (
            f"UPDATE ({wanted}) w STRAIGHT_JOIN {self.table} l FORCE INDEX (PRIMARY) ON l.k = w.k SET l.line = "
            f"INSERT(l.line, {spot}, {DIGITS}, GREATEST({until}, {_digits(f'{NOW} + w.ttl')})), "
            f"l.version = l.version + 1 WHERE LOCATE(w.mark, l.line) > 0 AND {until} > {_digits(NOW)}"
        )

    # -- the rest ----------------------------------------------------------------------------------------

    def look(self, key: str) -> Statements:
        """List the live claims of a name, or of a whole namespace."""
        return Statements(lambda facts: self._look(key))

    def _look(self, key: str) -> Talk:
        where = f"namespace = {_hex(key[:-1])} AND line <> ''" if key.endswith(SEPARATOR) else f"k = {_key(key)}"
        found = (yield f"SELECT name, line, {NOW} FROM {self.table} WHERE {where} ORDER BY name").rows
        return [
            _row(_bytes(name).decode(), place, int(now))
            for name, text, now in found
            for place in places_in(_bytes(text))
            if place.until > int(now)
        ]

    def namespaces(self) -> Statements:
        """List the namespaces that have live claims."""
        return Statements(lambda facts: self._namespaces())

    def _namespaces(self) -> Talk:
        found = (yield f"SELECT namespace, line, {NOW} FROM {self.table} WHERE line <> ''").rows
        alive = {
            _bytes(namespace).decode()
            for namespace, text, now in found
            if any(place.until > int(now) for place in places_in(_bytes(text)))
        }
        return [(namespace,) for namespace in sorted(alive)]

    def sweep(self, pages: int, age: float) -> Statements:
        """Delete names that nobody has used for `age` seconds, in a part of the table."""
        return Statements(lambda facts: self._sweep(micros(age)))

    def _sweep(self, age: int) -> Talk:
        idle = f"line = '' AND top < {NOW} - {age}"
        found: list[Any] = []
        for start in (_hex(secrets.token_bytes(32)), "''"):  # from somewhere; a small table, all of it
            rest = f"WHERE k >= {start} ORDER BY k LIMIT {PAGE - len(found)}"
            found += (yield f"SELECT k, {idle} FROM {self.table} {rest}").rows
            if len(found) == PAGE:
                break
        keys = ", ".join(_hex(_bytes(key)) for key, over in found if int(over))
        if keys:
            yield f"DELETE FROM {self.table} WHERE k IN ({keys}) AND {idle}"
        return []


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _line(text: Any, top: Any, version: Any, now: Any) -> Line:
    return Line(places_in(_bytes(text)), int(top), int(version), int(now))


def _row(name: str, place: LinePlace, now: int) -> tuple[Any, ...]:
    return (
        name, place.id, place.units, place.capacity, place.fence, place.host, place.pid, place.thread, place.label,
        place.since, place.until - now,
    )  # fmt: skip
