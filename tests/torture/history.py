"""The history of a run: one JSON object a line, with a time of the machine's monotonic clock, written at once.

e       says what happened, and which other keys there are
plan    a run begins: the plan, without what the URL hides
start   a process begins: colour, pid
invoke  an acquire begins: op, names, kind, units, capacity, timeout, ttl
queued  its claim stands in line: op, id
ok      it holds: op, ids, fences; from this time on
held    it still held: op; `t` was taken before it was asked
over    its release begins, and until `t` it held: op
lost    it found that it does not hold any more: op
fail    it was not obtained in time: op
unknown it was broken off: op, error, text
freed   its release has returned: op
write   the shelf was asked to write: name, counter, fence, accepted; in the order in which it was
lag     this process did not run: since, until `t`
end     a process closed all: descriptors and threads that it has more than before it began
exit    a process is gone: of, status, hung
fault   a fault was over at `t`: fault, since, of (the process that it struck), loses (data)
calm    no fault comes from here on
final   all have ended: counters, and the claims, files, keys and connections that are left
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]


class History:
    """Writes what a process does; each line by one system call, so that a killed process leaves all of it.

    Args:
        path: of the file; several processes write to one.
        process: what the writer is called.
    """

    def __init__(self, path: str | Path, process: str) -> None:
        self.path = path
        self.process = process
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: str, t: float | None = None, **facts: Any) -> None:
        """Write one record.

        Args:
            event: what happened.
            t: when; now unless given.
            facts: what else the record has.
        """
        record = {"t": monotonic() if t is None else t, "p": self.process, "e": event, **facts}
        os.write(self._file, json.dumps(record, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(path: str | Path) -> list[Record]:
    """Return the records of a history, by their time.

    Raises:
        OSError: it can't be read.
        ValueError: a line is no record; the message has its number.
    """
    with open(path, encoding="utf-8") as lines:
        return in_order(parsed(lines))


def parsed(lines: Iterable[str]) -> Iterator[Record]:
    """Yield the records of lines.

    Raises:
        ValueError: a line is no record; the message has its number.
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
    """Return records by their time; those of one time as they were written."""
    return sorted(records, key=lambda record: float(record["t"]))
