# Generated from _async/queue.py by tools/unasync.py; change that one.
"""The queue of etcd: claims are keys, and their order of creation decides."""

import json
from collections.abc import Sequence
from functools import partial

from interlock.core._sync.protocols import Queue, Waiting
from interlock.core.claims import (
    MICROS,
    PENDING,
    SEPARATOR,
    USING,
    Check,
    Claim,
    ClaimView,
    fits,
    namespace_of,
    record_view,
)
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.line import RENEWAL_GONE as OVER
from interlock.core.line import adopt, has_slots, renew
from interlock.core.queue import CLAIM_GONE, REFUSED, RUN_ALREADY_DONE, EnterResult, Held, Renewed, Wakeable
from interlock.core.renewal import ANSWER_WITHIN
from interlock.runtime import _threads as rt
from interlock.storekit._sync.step_queue import on_unavailable, view_of
from interlock.stores.etcd import wire
from interlock.stores.etcd._sync.gateway import Gateway
from interlock.stores.etcd._sync.leases import Leases, EtcdLease
from interlock.stores.etcd._sync.turns import Turns
from interlock.stores.etcd.options import EtcdOptions
from interlock.stores.etcd.wire import CLAIMS_FOLDER, LIVE, RECORD_KEY, SIGNALS_FOLDER, Found, Json

POLL_INTERVAL = 10.0  # seconds between two polls of a waiter; a safety net, because deletions are watched
MAX_LEASES_ASKED = 16  # maximum number of claims of a name for which a listing asks for lease times
OPERATIONS_PER_TRANSACTION = 100  # operations of one transaction; etcd accepts 128


class EtcdQueue(Queue):
    """A queue on etcd, for one process.

    Args:
        options: how to connect.
    """

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._folder = partial(wire.folder_of, options.prefix)
        self._gateway = Gateway(options)
        self._leases = Leases(self._gateway)
        self._turns = Turns(self._gateway, self._read, options.prefix)

    def subscribe(self) -> Waiting:
        """Return a waiter for the caller."""
        return rt.Waiter()

    def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        """See `Queue.enter`."""
        made = waiter or rt.Waiter()
        if may_queue:
            self._turns.add(claim, made)
        deadline = self._gateway.deadline()
        try:
            answer = (
                self._stands_yet(claim, deadline) if already_queued else self._enter(claim, may_queue, deadline)
            )
        except StoreError as error:
            answer = self._failed(claim, error, may_queue, already_queued)
        if answer.state == "pending":
            return answer._replace(waiter=made)
        self._turns.remove(claim.id)
        return answer

    def _stands_yet(self, claim: Claim, deadline: float) -> EnterResult:
        """Return the state of a waiting claim, and renew its lease.

        First the read, as in `renew`: a deposed leader that is stuck still extends leases (etcd issue 15247), but
        does not answer a linearizable read.
        """
        found = self._read(claim.spec.key, deadline)
        lease = self._leases.of.get(claim.id)
        asked = lease is not None and bool((self._leases.extend([lease], deadline))[0])
        return self._stands(claim, found, asked, deadline)

    def _enter(self, claim: Claim, wait: bool, deadline: float) -> EnterResult:
        """Put a claim into an empty line, or at the end if it waits or fits."""
        spec, folder = claim.spec, self._folder(claim.spec.key)
        path, lease, look = (
            folder + CLAIMS_FOLDER + claim.id,
            self._leases.take(claim, deadline),
            wire.look(folder),
        )
        queued = [wire.put(path, wire.place_of(claim, True), lease), look]
        done = self._gateway.transact(
            [wire.has_no_news(folder, 0)],
            [wire.put(path, wire.place_of(claim, False), lease)],
            queued if wait else [look],
            deadline,
            repeat=False,
        )
        if "succeeded" in done:
            return EnterResult("using", int(done["header"]["revision"]))
        found = wire.looked(folder, done)
        if not wait and found.place(claim.id) is None:
            was_done = spec.once and found.record is not None
            if was_done or not fits(
                spec.units, spec.capacity, [(each.units, each.capacity) for each in found.line.places]
            ):
                self._leases.free(claim)
                return RUN_ALREADY_DONE if was_done else REFUSED
            found = wire.looked(folder, self._gateway.transact([], queued, [], deadline, repeat=False))
        answer = self._stands(claim, found, True, deadline)
        if not wait and answer.state == "pending":  # other claims took the room in between
            self.leave(claim)
            return REFUSED
        return answer

    def _stands(self, claim: Claim, found: Found, asked: bool, deadline: float) -> EnterResult:
        """Return the state of a claim; a new holder of a semaphore gets its slot."""
        place, folder = found.place(claim.id), self._folder(claim.spec.key)
        if place is not None and place.once and found.record is not None:
            self.leave(claim)
            return RUN_ALREADY_DONE
        if place is not None and place.state == USING and has_slots(place.units, place.capacity) and not place.held:
            path, granted_place = folder + CLAIMS_FOLDER + claim.id, wire.place_of(claim, waits=False)
            done = self._gateway.transact(
                [wire.has_no_news(folder + CLAIMS_FOLDER, found.revision), wire.is_there(path)],
                [
                    wire.put(path, granted_place._replace(slot=place.slot, since=place.since), place.liveness_token),
                    wire.look(folder),
                ],
                [wire.look(folder)],
                deadline,
            )
            return self._stands(claim, wire.looked(folder, done), asked, deadline)
        if place is None:
            self._leases.of.pop(claim.id, None)
            return CLAIM_GONE
        if place.state == USING:
            return EnterResult("using", place.fence, lease_extended=asked, slot=place.slot)
        self._turns.watch(found.revision)
        return EnterResult("pending", poll_after=POLL_INTERVAL, lease_extended=asked)

    def _failed(self, claim: Claim, error: StoreError, wait: bool, again: bool) -> EnterResult:
        """Return the state of a claim whose request failed.

        Raises:
            StoreError: `error`, if a retry will not help, or the caller does not wait and nothing was done.
        """
        self._turns.remove(claim.id)
        if not again:
            try:  # after the revocation a late request finds no lease, and cannot enter
                self._leases.end(claim, self._gateway.deadline())
            except StoreError:
                error = UnknownOutcome(str(error))
        lost = isinstance(error, UnknownOutcome) and not again
        answer = on_unavailable(claim, error, wait or lost, self._gateway.answered)
        return answer._replace(state="gone") if lost else answer

    def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        """See `Queue.leave`."""
        self._turns.remove(claim.id)
        folder, deadline = self._folder(claim.spec.key), self._gateway.deadline()
        path = folder + CLAIMS_FOLDER + claim.id
        changes, rest = [wire.delete(path)], []
        if keep_for:
            places = (self._read(claim.spec.key, deadline)).line.places
            if all(place.id != claim.id or place.state == PENDING for place in places):
                return False
            waits = [place.id for place in places if place.once and place.state == PENDING]
            drops = [wire.delete(folder + CLAIMS_FOLDER + id) for id in waits]
            changes += drops[:OPERATIONS_PER_TRANSACTION]
            rest = drops[OPERATIONS_PER_TRANSACTION:]
            record = self._leases.grant(int(keep_for) + 1, deadline)
            changes.append(wire.put(folder + RECORD_KEY, stored_result, record.id))
        try:
            removed = lone = self._change(path, changes, deadline, repeat=False)
        except UnknownOutcome:
            lone = self._change(path, changes, deadline)
            removed = lone or not keep_for  # the first request may have removed the claim
        for start in range(
            0, len(rest) if removed else 0, OPERATIONS_PER_TRANSACTION
        ):  # if this fails, they find the record later
            self._gateway.transact(
                [], rest[start : start + OPERATIONS_PER_TRANSACTION], [], self._gateway.deadline()
            )
        if lone:
            self._leases.free(claim)
        else:  # a cancelled request that arrives late must find no lease
            self._leases.end(claim, deadline)
        return removed

    def _change(self, path: str, changes: list[Json], deadline: float, repeat: bool = True) -> bool:
        """Perform operations if a key exists; return True if it did."""
        return "succeeded" in self._gateway.transact([wire.is_there(path)], changes, [], deadline, repeat)

    def run_result(self, key: str) -> str | None:
        """See `Queue.run_result`."""
        record = (self._read(key)).record
        return None if record is None else record[0]

    def delete_run_result(self, key: str) -> bool:
        """See `Queue.delete_run_result`."""
        path = self._folder(key) + RECORD_KEY
        return self._change(path, [wire.delete(path)], self._gateway.deadline(), repeat=False)

    def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        """Renew like `Queue.renew`: read many lines, then extend many leases."""
        deadline = self._gateway.deadline(min([claim.spec.ttl * ANSWER_WITHIN for claim in claims], default=0.0))
        keys = list(dict.fromkeys(claim.spec.key for claim in claims))
        lines: dict[str, Found] = {}
        for start in range(0, len(keys), OPERATIONS_PER_TRANSACTION):
            some = keys[start : start + OPERATIONS_PER_TRANSACTION]
            done = self._gateway.transact([], [wire.look(self._folder(key)) for key in some], [], deadline)
            for key, response in zip(some, done["responses"], strict=True):
                lines[key] = wire.found_in(self._folder(key), response["response_range"])
        places = [lines[claim.spec.key].place(claim.id) for claim in claims]
        leases = {
            place.id: self._leases.of.get(place.id) or EtcdLease(place.liveness_token) for place in places if place
        }
        left = dict(zip(leases, self._leases.extend([*leases.values()], deadline), strict=True))
        return [
            renew(lines[claim.spec.key].line, LIVE, [claim.id]).answer[0] if left.get(claim.id) else OVER
            for claim in claims
        ]

    def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None:
        """Adopt like `Queue.adopt`; on this store a claim always outlives its process."""
        folder, deadline = self._folder(key) + CLAIMS_FOLDER, self._gateway.deadline()
        found = self._read(key, deadline)
        step = adopt(found.line, LIVE, id, claim, wire.origin())
        was = found.place(id)
        if step.line is not None and was is not None:
            if (claim.id, step.answer.ttl) != (id, was.ttl):  # otherwise a renewal on its way extends the right lease
                self._leases.of.pop(id, None)
            lease = self._leases.take(claim, deadline)
            changes, signal = [wire.put(folder + claim.id, step.answer, lease)], ""
            if claim.id != id:
                changes.append(wire.delete(folder + id))
            elif step.answer.units < step.answer.capacity:  # also if an earlier call was cut off before its signal
                signal = self._folder(key) + SIGNALS_FOLDER + id
                changes.append(wire.put(signal, "", lease))
            look = wire.look(self._folder(key))
            done = self._gateway.transact([wire.is_there(folder + id)], changes, [look], deadline)
            # Without the old key, an earlier request whose reply was lost may have renamed it.
            if "succeeded" not in done and wire.looked(self._folder(key), done).place(claim.id) is None:
                self._leases.free(claim)
                return None
            if signal:  # waiters watch deletions only
                self._gateway.transact([], [wire.delete(signal)], [], deadline)
        return None if step.answer is None else Held(claim, step.answer.fence, 0.0, step.answer.slot)

    def evict(self, key: str, id: str | None) -> int:
        """See `Queue.evict`."""
        changes = [wire.delete(self._folder(key) + CLAIMS_FOLDER + (id or ""))]
        done = self._gateway.transact([], changes, [], self._gateway.deadline(), repeat=False)
        return int(done["responses"][0]["response_delete_range"].get("deleted", 0))

    def look(self, key: str) -> list[ClaimView]:
        """List like `Queue.look`, with lease times for at most `FEW` claims of a name."""
        views, deadline = [], self._gateway.deadline()
        for each, found in sorted((self._lines(key)).items()):
            few = len(found.line.places) <= MAX_LEASES_ASKED and not key.endswith(SEPARATOR)
            for place in found.line.places:
                left = self._leases.left(place.liveness_token, deadline) * MICROS if few else place.ttl
                views.append(view_of(each, place, place.until - int(min(left, place.ttl))))
            if found.record is not None:
                views.append(record_view(each, self._leases.left(found.record[1], deadline)))
        return views

    def namespaces(self) -> list[str]:
        """List the namespaces with a holder or a waiter."""
        return sorted({namespace_of(key) for key in self._lines("")})

    def _lines(self, key: str) -> dict[str, Found]:
        """Return the claims and records of a key, of a namespace, or of all keys, by key."""
        prefix = self._options.prefix
        body = json.dumps(wire.in_folder(self._folder(key) if key else f"{prefix}/"))
        (reply,) = self._gateway.ask("kv/range", body, self._gateway.deadline())
        lines: dict[str, list[Json]] = {}
        for each in reply.get("kvs", ()):
            lines.setdefault(wire.key_of(prefix, wire.text_of(each["key"])), []).append(each)
        return {each: wire.found_in(self._folder(each), {"kvs": some}) for each, some in lines.items()}

    def _read(self, key: str, deadline: float = 0.0) -> Found:
        """Return the claims and the record of a key, by a linearizable read."""
        folder = self._folder(key)
        done = self._gateway.transact([], [wire.look(folder)], [], deadline or self._gateway.deadline())
        return wire.looked(folder, done)

    def doctor(self) -> list[Check]:
        """Check version, leader, alarms, a linearizable read, and the shortest lease."""
        deadline = self._gateway.deadline()
        (status,) = self._gateway.ask("maintenance/status", "{}", deadline)
        (alarms,) = self._gateway.ask("maintenance/alarm", "{}", deadline)
        self._read(SEPARATOR + "doctor", deadline)
        (lease,) = self._gateway.ask("lease/grant", '{"TTL": "1"}', deadline)
        self._gateway.ask("lease/revoke", json.dumps({"ID": lease["ID"]}), deadline)
        seconds, members = int(lease["TTL"]), len(self._options.members)
        return [
            Check("server", "ok", f"etcd {status['version']} answers linearizable reads."),
            Check(
                "leases",
                "ok",
                f"A process that dies with a ttl below {seconds} s blocks others for {seconds} to {seconds + 1} s.",
            ),
            Check(
                "members",
                "ok" if members > 2 else "warn",
                f"The URL has {members}. With three members one may fail: etcd://one,two,three.",
            ),
            *(
                Check(
                    "alarm",
                    "fail",
                    f"{each.get('alarm')}: no lock is granted until the alarm is disarmed (etcdctl "
                    "alarm list; disarm).",
                )
                for each in alarms.get("alarms", ())
            ),
        ]

    def close(self) -> None:
        """Close all connections."""
        self.abort()
        self._gateway.close()

    def abort(self) -> None:
        """Close all connections without waiting."""
        self._gateway.abort()
        self._turns.waiters.wake_all()
