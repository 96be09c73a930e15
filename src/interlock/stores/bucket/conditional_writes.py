"""A race for one object: does a server let only one concurrent write succeed?

Some S3-compatible servers let two succeed under load (SeaweedFS #8800, RustFS #1659, versitygw #2288).
"""

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from typing import Any

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from interlock.core.claims import Check
from interlock.stores.bucket.lines import first_line, version_of

LATEST = 60.0  # seconds to wait for the slowest client of a round
USE = "Do not keep locks there. Ask the vendor for atomic conditional writes."


def race(opened: Callable[[], Any], path: str, clients: int, rounds: int) -> list[Check]:
    """Let many clients write one object at the same moment if unchanged, repeatedly.

    Args:
        opened: returns a new store of obstore, with its own connections.
        path: the path of the object; it is deleted at the end.
        clients: the number of clients.
        rounds: the number of rounds; in every tenth round, from the first, the object does not exist yet.

    Returns:
        The findings: the number of rounds with one winner, and whether the object has the winner's content.
    """
    stores = [opened() for _ in range(clients)]
    list(stores[0].list(path))  # raises if the bucket does not exist; on some servers a write would create it
    start = Barrier(clients)

    def write(number: int, mode: object) -> bytes | str | None:
        body = f"{number} {secrets.token_hex(8)}".encode()
        start.wait(LATEST)
        try:
            stores[number].put(path, body, mode=mode)
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            return None
        except BaseError as error:
            return first_line(error)
        return body

    winners: Counter[int] = Counter()
    errors: list[str] = []
    overwritten = 0
    with ThreadPoolExecutor(clients) as pool:
        for number in range(rounds):
            if number % 10 == 0:
                _delete(stores[0], path)
                mode: object = "create"
            else:
                mode = version_of(stores[0].head(path))
            ended = list(pool.map(write, range(clients), [mode] * clients))
            won = [each for each in ended if isinstance(each, bytes)]
            failed = [each for each in ended if isinstance(each, str)]
            errors += failed
            if won or not failed:  # otherwise all writes may have failed for another reason, such as overload
                winners[len(won)] += 1
            overwritten += len(won) == 1 and not failed and bytes(stores[0].get(path).bytes()) != won[0]
    _delete(stores[0], path)
    return _findings(clients, rounds, winners, errors, overwritten)


def _delete(store: Any, path: str) -> None:
    with suppress(FileNotFoundError):
        store.delete(path)


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
            Check("what is there", "fail", f"The object differs from the winner's write {overwritten} times. {USE}")
        )
    if winners[0]:
        checks.append(Check("no winner", "warn", "Some rounds had no winner. This is safe, but waiters wait longer."))
    if errors:
        words = f"{len(errors)} writes failed, such as: {errors[0]}. Try fewer --clients."
        checks.append(Check("answers", "warn", words))
    return checks
