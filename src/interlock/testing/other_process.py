"""Another process that runs statements of a test, which can kill, stop or fork it.

`Remote(url)` starts `python -m interlock.testing.other_process URL`, which reads statements from its input, one JSON
string in each line, runs them with the variable `locks`, and answers with the value of `result`.
"""

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import interlock
from interlock.testing.waiting import WAIT_LIMIT


class RemoteError(Exception):
    """A statement raised an exception in the other process; `kind` is the name of its class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Remote:
    """Another process.

    Args:
        url: the URL of `locks` there; None to leave that to the test.
        before: words before its command, for example to start it on another host.
    """

    def __init__(self, url: str | None, before: Sequence[str] = ()) -> None:
        command = [*before, sys.executable, "-m", "interlock.testing.other_process", *([] if url is None else [url])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def start(self, statements: str) -> None:
        """Let it run `statements`; return immediately."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(statements) + "\n")
        self.process.stdin.flush()

    def answer(self, within: float = WAIT_LIMIT) -> Any:
        """Wait for the answer to the oldest unanswered statements.

        Raises:
            RemoteError: the statements raised an exception.
            AssertionError: there was no answer in time, or the process has ended.
        """
        try:
            line = self._answers.get(timeout=within)
        except queue.Empty:
            raise AssertionError(f"no answer within {within:g} s") from None
        assert line, "the process has gone"
        reply = json.loads(line)
        if "error" in reply:
            raise RemoteError(reply["error"], reply["message"])
        return reply["result"]

    def do(self, statements: str) -> Any:
        """Let it run `statements` and wait for the value of `result`."""
        self.start(statements)
        return self.answer()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait for its end."""
        self.process.kill()
        self.process.wait(WAIT_LIMIT)

    def end(self) -> int:
        """Let it exit normally; return its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(WAIT_LIMIT)

    def close(self) -> None:
        """Kill it if it still runs, and close its pipes."""
        if self.process.poll() is None:
            if sys.platform != "win32":  # which can't stop a process
                self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(WAIT_LIMIT)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            try:
                stream.close()
            except OSError:
                pass  # the process died before it had read all
        self._reader.join(WAIT_LIMIT)


def count(url: str, name: str, path: str, times: int, pause: float = 0.0) -> None:
    """Run critical sections that write to a log, and lose an update if two of them overlap.

    Each reads the number in the last line and appends the next one, with the fence; a kill at any moment leaves a
    valid log.

    Args:
        url, name: the lock.
        path: the log.
        times: the number of sections.
        pause: seconds between reading and writing.
    """
    with interlock.connect(url) as locks:
        lock = locks.lock(name)
        for _ in range(times):
            with lock as grant:
                log_next(path, grant.fence, pause)


def log_next(path: str, fence: int, pause: float = 0.0) -> None:
    """Append the number after the last one to the log; two overlapping calls append the same number."""
    with open(path, "a+b", buffering=0) as log:
        log.seek(0)
        lines = log.read().splitlines()
        last = int(lines[-1].split()[0]) if lines else 0
        time.sleep(pause)
        log.write(b"%d %d\n" % (last + 1, fence))


def logged(path: str) -> tuple[list[int], list[int]]:
    """Return the numbers and the fences in a log."""
    with open(path) as log:
        pairs = [line.split() for line in log]
    return [int(number) for number, _ in pairs], [int(fence) for _, fence in pairs]


def _serve() -> None:
    names: dict[str, Any] = {"interlock": interlock, "count": count, "log_next": log_next}
    if len(sys.argv) > 1:
        names["url"] = sys.argv[1]
        names["locks"] = interlock.connect(sys.argv[1])
    for line in sys.stdin:
        names["result"] = None
        try:
            exec(json.loads(line), names)
            reply = {"result": names["result"]}
        except Exception as error:
            reply = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    _serve()
