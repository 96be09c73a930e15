"""Under gevent a wait for a lock does not block the other greenlets: the compiled waits are not used there."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stores import ROWS, Row

PLAY = """
from gevent import monkey; monkey.patch_all()
import sys, gevent, interlock
locks = interlock.connect(sys.argv[1])
inside = []
def work(number):
    for _ in range(10):
        with locks.lock("book"):
            inside.append(number)
            gevent.sleep(0.001)
            assert inside.pop() == number and not inside
ended = gevent.joinall([gevent.spawn(work, number) for number in range(4)], timeout=30, raise_error=True)
print(len(ended))
locks.close()
"""


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.name in ("memory", "file", "valkey")], ids=lambda row: row.name
)
def test_greenlets_wait_for_each_other(row: Row, tmp_path: Path) -> None:
    url = row.place(tmp_path).url or "memory://"
    done = subprocess.run([sys.executable, "-c", PLAY, url], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("4\n", 0), done.stderr
