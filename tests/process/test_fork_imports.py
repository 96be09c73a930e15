"""`connect` imports all that locking needs: a child forked while a thread imports would wait for the import lock."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stores import PARTIAL_ROWS, ROWS, Row

THREADS = """
import sys, interlock
locks, others = interlock.connect(sys.argv[1]), interlock.connect(sys.argv[1])
connected = set(sys.modules)
with locks.lock("a book of Ann's"):
    assert others.lock("a book of Ann's").acquire(timeout=0.1) is None
print(sorted(name for name in {*sys.modules} - connected if name.partition(".")[0] != "coverage"))
locks.close()
others.close()
"""


@pytest.mark.parametrize("row", [row for row in [*ROWS, *PARTIAL_ROWS] if row.schemes], ids=lambda row: row.name)
def test_the_first_acquire_imports_nothing(row: Row, tmp_path: Path) -> None:
    url = row.place(tmp_path).url or "memory://"
    ended = subprocess.run([sys.executable, "-c", THREADS, url], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")
