"""psycopg without libpq, as `pip install psycopg` leaves it where PostgreSQL's client is not installed."""

import subprocess
import sys

import pytest

WITHOUT = """
import ctypes.util, sys
sys.modules["psycopg_c"] = sys.modules["psycopg_binary"] = None
ctypes.util.find_library = lambda name: None
import interlock
try:
    interlock.connect(sys.argv[1])
except interlock.StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "postgresql+advisory"])
def test_a_missing_libpq_is_reported_with_what_to_install(scheme: str) -> None:
    words = [sys.executable, "-c", WITHOUT, f"{scheme}://me@127.0.0.1/db"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("psycopg cannot find libpq")
    assert "pip install 'psycopg[binary]'" in done.stdout
    assert "need psycopg 3" not in done.stdout
    assert done.stdout.count("\n") == 1
