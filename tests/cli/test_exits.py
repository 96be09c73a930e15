"""The one line on the error stream."""

import io
import sys

import pytest

from interlock.cli.exits import UNAVAILABLE, say
from tests.support.house import COMMAND, House


class Written(io.StringIO):
    """An error stream that keeps apart what it was given by each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def write(self, text: str) -> int:
        """As `StringIO.write`."""
        self.calls.append(text)
        return super().write(text)


def test_a_line_is_written_by_one_call_for_threads_speak_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Written()
    monkeypatch.setattr(sys, "stderr", stream)
    say("two\nlines")
    assert stream.calls == ["interlock: two\\nlines\n"]


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_an_error_stream_that_takes_nothing_stops_no_command(house: House, closed: str) -> None:
    shell = ["env", "-u", "PYTHONUNBUFFERED", "sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND]
    assert house.run("run", "-v", "book", "--", "echo", "done", command=shell) == (0, "done\n", "")
    assert house.run("run", "book", "--", "/nowhere", command=shell)[0] == UNAVAILABLE


def test_an_error_stream_that_is_closed_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for ended in ("close", "detach"):
        stream = io.TextIOWrapper(io.BufferedWriter(io.BytesIO()))
        getattr(stream, ended)()
        monkeypatch.setattr(sys, "stderr", stream)
        say("not heard")
