"""The history of a run: one JSON object in each line, with the time of the machine's monotonic clock.

e       the event, which determines the other keys
plan    a run begins: the plan, without passwords
start   a process begins: colour, pid
invoke  an acquire begins: op, names, kind, units, capacity, timeout, ttl
queued  its claim waits: op, id
ok      it holds the lock from this time on: op, ids, fences
held    it still held the lock: op; `t` was taken before the check
over    its release begins, and it held the lock until `t`: op
lost    it found that it has lost the lock: op
evict   the claim of another operation is going to be evicted: op, id, state
skipped a completed run of `once` is recorded, so there is nothing to do: op
done    its run of `once` was recorded: op
fail    the acquire timed out: op
unknown the operation was cancelled or failed: op, error, text
freed   its release has returned: op
write   a write to the shelf: name, counter, fence, accepted; in the order of the writes
lag     this process did not run: since, until `t`
end     a process closed everything: the descriptors and threads that it did not have before
exit    a process has ended: of, status, hung
fault   a fault ended at `t`: fault, since, of (the process that it struck), loses (data)
calm    no fault follows
final   all processes have ended: counters, and the claims, files, keys and connections that are left
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]


class History:
    """Writes the events of a process; each line by one system call, so that a killed process leaves whole lines.

    Args:
        path: the file; several processes write to it.
        process: the name of the writer.
    """

    def __init__(self, path: str | Path, process: str) -> None:
        self.path = path
        self.process = process
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: str, t: float | None = None, **facts: Any) -> None:
        """Write one record.

        Args:
            event: the event.
            t: its time; None for now.
            facts: the other keys of the record.
        """
        record = {"t": monotonic() if t is None else t, "p": self.process, "e": event, **facts}
        os.write(self._file, json.dumps(record, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(path: str | Path) -> list[Record]:
    """Return the records of a history, ordered by time.

    Raises:
        OSError: the file can't be read.
        ValueError: a line is not a record; the message has its number.
    """
    with open(path, encoding="utf-8") as lines:
        return in_order(parsed(lines))


def parsed(lines: Iterable[str]) -> Iterator[Record]:
    """Parse lines as records.

    Raises:
        ValueError: a line is not a record; the message has its number.
    """
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if not {"t", "p", "e"} <= record.keys():
                raise ValueError("t, p or e is missing")
        except (ValueError, AttributeError) as error:
            raise ValueError(f"line {number} is no record of a history: {error}") from None
        yield record


def in_order(records: Iterable[Record]) -> list[Record]:
    """Return records ordered by time; those with equal times in the order of writing."""
    return sorted(records, key=lambda record: float(record["t"]))
