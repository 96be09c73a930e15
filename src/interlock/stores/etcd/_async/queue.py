"""The queue of etcd: claims are keys in the order of their creation, and who holds the lock follows from it."""

import json
from collections.abc import Sequence
from typing import Any

from interlock.core.claims import SEPARATOR, Check, Claim, ClaimView, namespace_of, record_view
from interlock.core.errors import LockError, StoreError, UnknownOutcome
from interlock.core.line import GONE as GONE_THERE
from interlock.core.line import KEPT, WANTED
from interlock.core.queue import BUSY, DONE_BEFORE, GONE, OCCUPIED, REFUSED, EnterResult, Held, Outage, Renewed
from interlock.remote.failures import Denied, Passing, Unreachable
from interlock.runtime import _aio as rt
from interlock.runtime import clock
from interlock.stores.etcd import wire
from interlock.stores.etcd._async.gateway import AsyncGateway
from interlock.stores.etcd._async.leases import AsyncLeases, Lease
from interlock.stores.etcd._async.turns import AsyncTurns
from interlock.stores.etcd.options import EtcdOptions
from interlock.stores.etcd.wire import CLAIMS, DONE, SLOTS, Found, Json

LOOK_AGAIN = 10.0  # seconds; only a safety net, since deletions are watched
AWAY = 0.25  # seconds until a cluster that is away is asked again
RECOVERY = 60.0  # seconds to wait for a cluster that is away, where the caller has set no limit
FIRST_CONTACT = 2.0  # seconds; where nothing was ever done, the address is probably wrong
TRIES = 8  # writes that others came before, until the store counts as busy
FEW = 16  # claims whose leases are asked for when people look
AT_ONCE = 100  # operations of one transaction; etcd takes 128


class AsyncEtcdQueue:
    """A queue on etcd, for one process or event loop.

    Args:
        options: how to connect.
    """

    node_of = None

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._gateway = AsyncGateway(options)
        self._leases = AsyncLeases(self._gateway)
        self._turns = AsyncTurns(self._gateway, self._look_at, options.prefix)

    def set_doubt(self, doubt: Any) -> None:
        """Nothing: what was committed is there."""

    def subscribe(self) -> Any:
        """Return what the caller can wait on."""
        return rt.AsyncWaiter()

    def rest(self) -> None:
        """Nothing: idle connections end by themselves."""

    async def enter(self, claim: Claim, waiter: Any, wait: bool, again: bool) -> EnterResult:
        """As `AsyncQueue.enter`."""
        try:
            if again:
                if waiter is not None:
                    self._turns.add(claim, waiter)
                asked = await self._leases.refresh(claim)
                answer = await self._stands(claim, await self._read(claim.spec.key), asked)
            else:
                answer = await self._enter(claim, waiter, wait)
        except StoreError as error:
            return await self._failed(claim, error, wait, again)
        if answer.state != "pending":
            self._turns.remove(claim)
        return answer

    async def _enter(self, claim: Claim, waiter: Any, wait: bool) -> EnterResult:
        """Put a claim where nobody stands, or where there is room for it; at the end of the line if it waits."""
        spec, folder = claim.spec, self._folder(claim.spec.key)
        queues = wait and waiter is not None
        if queues:
            self._turns.add(claim, waiter)
        lease = await self._leases.take(claim)
        condition, slot = wire.is_empty(folder), 0
        for _ in range(TRIES):
            waits = [wire.put(folder + CLAIMS + claim.id, wire.value_of(claim), lease.id)] if queues else []
            done = await self._gateway.transact(
                [condition], self._puts(claim, lease, slot), [*waits, wire.look(folder)], repeat=False
            )
            if done.succeeded:
                lease.sure = lease.granted = True
                lease.slot = slot if wire.has_slot(claim) else None
                return EnterResult("using", done.revision, slot=slot)
            found = wire.found_in(folder, done.responses[-1]["response_range"], done.revision)
            if queues or found.at(claim.id) >= 0:
                lease.sure = True
                return await self._stands(claim, found, True)
            occupied = not found.fits(claim)
            if occupied or (spec.once and found.record):
                break
            condition, slot = wire.has_no_news(folder, done.revision), found.free_slot(claim) or 0
        self._leases.free(self._leases.of.pop(claim.id))
        if spec.once and found.record:
            return DONE_BEFORE
        return BUSY if not occupied else OCCUPIED if wait else REFUSED

    def _puts(self, claim: Claim, lease: Lease, slot: int) -> list[Json]:
        """Return what puts a claim that holds the lock."""
        folder = self._folder(claim.spec.key)
        puts = [wire.put(folder + CLAIMS + claim.id, wire.value_of(claim, holds=True), lease.id)]
        if wire.has_slot(claim):
            puts.append(wire.put(f"{folder}{SLOTS}{slot}", claim.id, lease.id))
        return puts

    async def _stands(self, claim: Claim, found: Found, asked: bool) -> EnterResult:
        """Say where a claim stands."""
        at, lease = found.at(claim.id), self._leases.of.get(claim.id)
        if at >= 0 and claim.spec.once and found.record and not (lease and lease.granted):
            await self.leave(claim)
            return DONE_BEFORE
        slot = await self._slot(claim, found) if at >= 0 and found.holds(at) else 0
        if at < 0 or slot is None:
            self._leases.of.pop(claim.id, None)
            return GONE
        if not found.holds(at):
            if self._turns.stands(claim, found, at):
                return await self._stands(claim, await self._read(claim.spec.key), asked)
            return EnterResult("pending", look_again=LOOK_AGAIN, asked=asked)
        if lease is not None:
            lease.granted = True
        return EnterResult("using", found.places[at].place, asked=asked, slot=slot)

    async def _look_at(self, claims: list[Claim]) -> list[EnterResult]:
        """Say where claims of one key stand."""
        found = await self._read(claims[0].spec.key)
        return [await self._stands(claim, found, False) for claim in claims]

    async def _slot(self, claim: Claim, found: Found) -> int | None:
        """Return the slot of a claim that holds the lock, and take one if it has none; None: it is gone."""
        folder, lease = self._folder(claim.spec.key), self._leases.of.get(claim.id)
        while wire.has_slot(claim) and claim.id not in found.slots:
            number = found.places[found.at(claim.id)].lease if lease is None else lease.id
            path = f"{folder}{SLOTS}{found.free_slot(claim)}"
            done = await self._gateway.transact(
                [wire.has_no_news(folder + SLOTS, found.revision), wire.is_there(folder + CLAIMS + claim.id)],
                [wire.put(path, claim.id, number), wire.look(folder)],
                [wire.look(folder)],
            )
            found = wire.found_in(folder, done.responses[-1]["response_range"], done.revision)
            if found.at(claim.id) < 0:
                return None
        slot = found.slots.get(claim.id, 0)
        if lease is not None and wire.has_slot(claim):
            lease.slot = slot
        return slot

    async def _failed(self, claim: Claim, error: StoreError, wait: bool, again: bool) -> EnterResult:
        """Say how a claim stands whose request failed.

        Raises:
            StoreError: waiting does not help, or is not wanted.
        """
        if not again:
            self._turns.remove(claim)
            await self._leases.undo(claim.id)
        passes = isinstance(error, (Passing, Unreachable, UnknownOutcome)) and not isinstance(error, Denied)
        if not passes or not wait:
            raise error
        limit = max(RECOVERY, claim.spec.ttl) if self._gateway.answered else FIRST_CONTACT
        late = isinstance(error, UnknownOutcome) and not again
        return EnterResult(
            "gone" if late else "busy", look_again=AWAY, asked=False, outage=Outage(error, limit)
        )  # a late request finds no lease

    async def leave(self, claim: Claim, done: float = 0.0, value: str = "") -> bool:
        """As `AsyncQueue.leave`."""
        self._turns.remove(claim)
        if done:
            return await self._complete(claim, done, value)
        lease = self._leases.of.pop(claim.id, None)
        if lease is not None and not lease.sure:
            return await self._leases.revoke(lease)  # a request that was broken off may come late
        folder, slots = self._folder(claim.spec.key), []
        if wire.has_slot(claim):
            slots = [lease.slot] if lease is not None else [(await self._read(claim.spec.key)).slots.get(claim.id)]
        path = folder + CLAIMS + claim.id
        paths = [f"{folder}{SLOTS}{slot}" for slot in slots if slot is not None]
        for repeated in (False, True):
            try:
                answer = await self._gateway.transact(
                    [wire.says(each, claim.id) for each in paths],
                    [wire.delete(each) for each in (path, *paths)],
                    [wire.delete(path)],
                    repeat=False,
                )
                break
            except UnknownOutcome:
                if repeated:
                    raise
        if lease is not None:
            self._leases.free(lease)
        return repeated or bool(wire.deleted(answer.responses[:1]))

    async def _complete(self, claim: Claim, seconds: float, value: str) -> bool:
        """Take out a holder, leave a record of its run, and take out those who need not run any more."""
        folder = self._folder(claim.spec.key)
        found = await self._read(claim.spec.key)
        at = found.at(claim.id)
        if at < 0 or not found.holds(at):
            return False
        lease = self._leases.of.pop(claim.id, None)
        record = await self._leases.grant(int(seconds) + 1)
        path = folder + CLAIMS + claim.id
        others = [each.id for n, each in enumerate(found.places) if each.once and not found.holds(n)]
        slots = [f"{folder}{SLOTS}{found.slots[claim.id]}"] if claim.id in found.slots else []
        out = [path, *slots, *(folder + CLAIMS + id for id in others[:AT_ONCE])]
        answer = await self._gateway.transact(
            [wire.is_there(path)], [*map(wire.delete, out), wire.put(folder + DONE, value, record.id)]
        )
        if lease is not None:
            self._leases.free(lease)
        return answer.succeeded

    async def kept(self, key: str) -> str | None:
        """As `AsyncQueue.kept`."""
        record = (await self._read(key)).record
        return None if record is None else record[0]

    async def forget(self, key: str) -> bool:
        """As `AsyncQueue.forget`."""
        done = await self._gateway.transact([], [wire.delete(self._folder(key) + DONE)])
        return bool(wire.deleted(done.responses))

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        """As `AsyncQueue.renew`: by one transaction that reads, and one stream that extends."""
        limit = min([self._options.io_timeout, *[claim.spec.ttl / 3 for claim in claims]])
        keys = list(dict.fromkeys(claim.spec.key for claim in claims))
        found: dict[str, Found] = {}
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            done = await self._gateway.transact([], [wire.look(self._folder(key)) for key in some])
            for key, response in zip(some, done.responses, strict=True):
                found[key] = wire.found_in(self._folder(key), response.get("response_range", {}), done.revision)
        leases: dict[str, Lease] = {}
        wanted: dict[str, int] = {}
        for claim in claims:
            line = found[claim.spec.key]
            at = line.at(claim.id)
            if at >= 0:
                leases[claim.id] = self._leases.of.get(claim.id) or Lease(line.places[at].lease, 0, 0.0, 0.0)
                wanted[claim.id] = KEPT if line.holds(len(line.places) - 1) else WANTED
        left = await self._leases.extend_all(list(leases.values()), limit)
        kept = {id for id, seconds in zip(leases, left, strict=True) if seconds}
        for claim in claims:
            if claim.id not in kept:
                self._leases.of.pop(claim.id, None)
        return [wanted[claim.id] if claim.id in kept else GONE_THERE for claim in claims]

    async def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None:
        """As `AsyncQueue.adopt`; a claim outlives its process on this store in any case."""
        folder = self._folder(key)
        for _ in range(TRIES):
            found = await self._read(key)
            there = found.at(claim.id)
            if there >= 0 and claim.id != id:
                return Held(claim, found.places[there].place, 0.0, found.slots.get(claim.id, 0))
            at = found.at(id)
            if at < 0 or not found.holds(at):
                break
            old, slot = found.places[at], found.slots.get(id)
            lease = await self._leases.take(claim)
            slots = [] if slot is None else [f"{folder}{SLOTS}{slot}"]
            gone = [wire.delete(folder + CLAIMS + id)] if claim.id != id else []
            puts = [wire.put(folder + CLAIMS + claim.id, wire.value_of(claim, place=old), lease.id)]
            puts += [wire.put(each, claim.id, lease.id) for each in slots]
            done = await self._gateway.transact(
                [wire.is_there(folder + CLAIMS + id), *(wire.says(each, id) for each in slots)],
                [*gone, *puts],
            )
            lease.sure, lease.slot = True, slot
            if done.succeeded:
                if gone:
                    self._leases.of.pop(id, None)
                return Held(claim, old.place, 0.0, slot or 0)
        if claim.id != id and claim.id in self._leases.of:
            self._leases.free(self._leases.of.pop(claim.id))  # nothing is bound to it
        return None

    async def evict(self, key: str, id: str | None) -> int:
        """As `AsyncQueue.evict`."""
        folder, count = self._folder(key), 0
        found = await self._read(key)
        ids = [place.id for place in found.places if id is None or place.id == id]
        for start in range(0, len(ids), AT_ONCE // 2):
            some = ids[start : start + AT_ONCE // 2]
            slots = [found.slots[each] for each in some if each in found.slots]
            claims = [wire.delete(folder + CLAIMS + each) for each in some]
            # If somebody took a slot since, that may be one of these: then theirs end with their leases.
            done = await self._gateway.transact(
                [wire.has_no_news(folder + SLOTS, found.revision)],
                [*claims, *(wire.delete(f"{folder}{SLOTS}{slot}") for slot in slots)],
                claims,
            )
            count += wire.deleted(done.responses[: len(claims)])
        return count

    async def look(self, key: str) -> list[ClaimView]:
        """As `AsyncQueue.look`; how long leases last is asked for a few of them only, one by one as etcd wants it."""
        views = []
        for each, found in sorted((await self._lines(key)).items()):
            few = len(found.places) <= FEW and not key.endswith(SEPARATOR)
            left = [await self._leases.left(place.lease) if few else place.ttl for place in found.places]
            views += wire.views_of(found, each.partition(SEPARATOR)[2], left)
            if found.record is not None:
                views.append(record_view(each, await self._leases.left(found.record[1])))
        return views

    async def namespaces(self) -> list[str]:
        """List the namespaces in which somebody holds a lock or waits."""
        return sorted(
            {namespace_of(key) for key, found in (await self._lines("")).items() if found.places or found.record}
        )

    async def _lines(self, key: str) -> dict[str, Found]:
        """Return what stands in the folder of a key, in those of a namespace, or in all of them."""
        prefix = self._options.prefix
        folder = self._folder(key) if key else f"{prefix}/"
        (reply,) = await self._gateway.ask("kv/range", json.dumps(wire.in_folder(folder)))
        lines: dict[str, list[Json]] = {}
        for each in reply.get("kvs", ()):
            lines.setdefault(wire.key_of(prefix, wire.text_of(each["key"])), []).append(each)
        revision = int(reply["header"]["revision"])
        return {each: wire.found_in(self._folder(each), {"kvs": some}, revision) for each, some in lines.items()}

    async def _read(self, key: str) -> Found:
        """Return what stands in the folder of a key: no member that is behind answers."""
        folder = self._folder(key)
        (reply,) = await self._gateway.ask("kv/range", json.dumps(wire.in_folder(folder)))
        return wire.found_in(folder, reply, int(reply["header"]["revision"]))

    def _folder(self, key: str) -> str:
        return wire.folder_of(self._options.prefix, key)

    async def doctor(self) -> list[Check]:
        """Look at version, leader, alarms, round trip, and the shortest lease."""
        try:
            (status,) = await self._gateway.ask("maintenance/status", "{}")
            (alarms,) = await self._gateway.ask("maintenance/alarm", "{}")
            times = []
            for _ in range(5):
                sent = clock.now()
                await self._read(SEPARATOR + "doctor")
                times.append(clock.now() - sent)
            shortest = await self._leases.grant(1)
            await self._leases.revoke(shortest)
        except LockError as error:
            return [Check("server", "fail", str(error))]
        seconds = round(shortest.until - shortest.sent)
        words = f"whoever dies with a ttl of less than {seconds} s holds up others for {seconds} to {seconds + 1} s"
        checks = [
            Check("version", "ok", f"{status['version']}, {len(self._options.members)} member(s) in the URL"),
            Check("server", "ok", f"answers linearizable reads in {min(times) * 1e6:.0f} us"),
            Check("leases", "ok", words),
        ]
        for alarm in alarms.get("alarms", ()):
            words = f"{alarm.get('alarm')}: nobody gets a lock until it is disarmed (etcdctl alarm list; disarm)"
            checks.append(Check("alarm", "fail", words))
        if len(self._options.members) < 3:
            words = "give three members, else one that fails takes the locks away: etcd://one,two,three"
            checks.append(Check("members", "warn", words))
        return checks

    async def aclose(self) -> None:
        """Close all connections."""
        self._turns.close()
        await self._gateway.aclose()

    def abort(self) -> None:
        """Give up what is open, since the loop has ended."""
        self._turns.close()
        self._gateway.abort()
