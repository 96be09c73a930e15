"""A race for one object: does a server let only one concurrent conditional write succeed?

Some S3-compatible servers let two succeed under load (SeaweedFS #8800, RustFS #1659, versitygw #2288).
"""

import secrets
from collections import Counter
from collections.abc import Sequence
from threading import Barrier
from typing import Protocol, TypeVar

from interlock.core.claims import Check
from interlock.core.errors import StoreError

V = TypeVar("V")
"""The version of the object."""
LATEST = 60.0  # seconds to wait for the slowest client of a round
USE = "Do not keep locks there. Ask the vendor for atomic conditional writes."


class Racer(Protocol[V]):
    """A client with its own connections, and the object for which it races."""

    def read(self) -> tuple[V | None, bytes]:
        """Return version and content of the object; None without one."""

    def write(self, version: V | None, body: bytes) -> bool:
        """Write the object if its version is unchanged, or if it does not exist; return False if it was changed.

        Raises:
            StoreError: the write failed for another reason.
        """

    def delete(self) -> None:
        """Delete the object if it exists."""


def race(racers: Sequence[Racer[V]], rounds: int) -> list[Check]:
    """Let many clients write one object at the same moment if unchanged, repeatedly.

    Args:
        racers: the clients.
        rounds: the number of rounds; in every tenth round, from the first, the object does not exist yet.

    Returns:
        The findings: the number of rounds with one winner, and whether the object has the winner's content.
    """
    # Loaded late, because this module cannot be imported after the end of the main thread.
    from concurrent.futures import ThreadPoolExecutor

    start = Barrier(len(racers))

    def write(number: int, version: V | None) -> bytes | str | None:
        body = f"{number} {secrets.token_hex(8)}".encode()
        start.wait(LATEST)
        try:
            return body if racers[number].write(version, body) else None
        except StoreError as error:
            return str(error)

    winners: Counter[int] = Counter()
    errors: list[str] = []
    overwritten = 0
    with ThreadPoolExecutor(len(racers)) as pool:
        for number in range(rounds):
            version = None
            if number % 10 == 0:
                racers[0].delete()
            else:
                version, _ = racers[0].read()
            ended = list(pool.map(write, range(len(racers)), [version] * len(racers)))
            won = [each for each in ended if isinstance(each, bytes)]
            failed = [each for each in ended if isinstance(each, str)]
            errors += failed
            if won or not failed:  # otherwise all writes may have failed for another reason, such as overload
                winners[len(won)] += 1
            overwritten += len(won) == 1 and not failed and racers[0].read()[1] != won[0]
    racers[0].delete()
    return _findings(len(racers), rounds, winners, errors, overwritten)


def _findings(
    clients: int, rounds: int, winners: Counter[int], errors: Sequence[str], overwritten: int
) -> list[Check]:
    two = sum(count for many, count in winners.items() if many > 1)
    summary = (
        f"{clients} clients, {rounds} rounds: one winner in {winners[1]}, none in {winners[0]}, several in {two}"
    )
    checks = [Check("race", "fail" if two else "ok", f"{summary}. {USE}" if two else summary)]
    if overwritten:
        checks.append(
            Check(
                "stored content",
                "fail",
                f"In {overwritten} rounds the object did not contain the winner's write. {USE}",
            )
        )
    if winners[0]:
        checks.append(Check("no winner", "warn", "Some rounds had no winner. This is safe, but waiters wait longer."))
    if errors:
        words = f"{len(errors)} writes failed, such as: {errors[0]}. Try fewer --clients."
        checks.append(Check("answers", "warn", words))
    return checks
