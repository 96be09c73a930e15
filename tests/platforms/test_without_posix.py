"""Without POSIX, as on Windows: the package, memory:// and servers work; `test_windows` tests files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import PostgresServer, RedisServer, need

ROOT = Path(__file__).parents[2]
SUITE = Path(__file__).parent / "suite_without_posix.py"
CONTRACT = "release_wakes or excludes or time_out_says or fence_is_greater or reply_was_lost or raises_on_leaving"
PLATFORM = "command_looks or advisory or nothing_is_left or knows_namespaces"
CHOSEN = os.environ.get("INTERLOCK_TEST_WITHOUT_POSIX", f"exclusive and ({CONTRACT}) or {PLATFORM}")
"""Words for pytest's -k; an empty text runs all of the contract, which takes half an hour."""
LIMIT = 280 if "INTERLOCK_TEST_WITHOUT_POSIX" not in os.environ else 3000  # seconds


@pytest.mark.timeout(LIMIT + 20)
def test_the_contract_holds_without_posix(tmp_path: Path) -> None:
    need("valkey")
    need("postgres")
    (tmp_path / "test_suite.py").write_text(SUITE.read_text())
    words = ("-q", "-x", "-p", "no:cacheprovider", "-p", "tests.support.no_posix", "-k", CHOSEN)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path}
    with RedisServer("valkey") as valkey, PostgresServer() as postgres:
        urls = f"memory://x {postgres.url}?create=true {valkey.url}"
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=tmp_path,
            env={**os.environ, **alone, "URLS": urls},
            timeout=LIMIT,
            check=False,
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr
    assert int(re.findall(r"(\d+) passed", ran.stdout)[0]) > 40


def test_nobody_asks_for_forks_past_the_guard() -> None:
    """Without fork there is no `os.register_at_fork`: the package and `runtime.process` check for it."""
    found = [path for path in (ROOT / "src").rglob("*.py") if "os.register_at_fork" in path.read_text()]
    assert sorted(path.name for path in found) == ["loading.py", "process.py"]
