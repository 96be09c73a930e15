"""Compiled functions, few open files, no /proc; the errors of a server without the table, or with two."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from tests.environments.conftest import Run

FEW_FILES = """
import resource, sys
import interlock
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
locks = interlock.connect(sys.argv[1])
for number in range(1000):
    with locks.lock(f"name {number}"): pass
grants = [locks.lock(f"held {number}").acquire(timeout=20) for number in range(20)]
files = [open("/dev/null") for _ in range(100)]  # there is room for the program
print(all(grant.release() for grant in grants))
"""


def test_a_thousand_names_need_no_thousand_files(url: str, run: Run) -> None:
    assert run(FEW_FILES, url) == "True"


EVENTLET = """
import eventlet
eventlet.monkey_patch()
import sys
import interlock
locks = interlock.connect(sys.argv[1])
inside, most = [], []
def work():
    for _ in range(5):
        with locks.lock("x"):
            inside.append(1)
            most.append(len(inside))
            eventlet.sleep(0.001)
            inside.pop()
for green in [eventlet.spawn(work) for _ in range(4)]:
    green.wait()
print(len(most), max(most))
"""


def test_green_threads_of_eventlet_take_turns(url: str, run: Run) -> None:
    pytest.importorskip("eventlet")
    if url.startswith("etcd"):
        pytest.skip("httpx imports trio where it is installed, as here, and trio can't be imported under eventlet")
    assert run(EVENTLET, url, PYTHONWARNINGS="ignore") == "20 1"


WITHOUT_TABLE = """
import logging, sys
import interlock
logging.basicConfig(stream=sys.stdout)
try:
    interlock.connect(sys.argv[1]).lock("x").acquire()
except interlock.StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)
def test_a_missing_table_is_told_once(url: str, run: Run) -> None:
    place, _, _ = url.partition("?")
    told = run(WITHOUT_TABLE, f"{place}?table=nothere&create=false").splitlines()
    assert len(told) == 1
    assert "create=false" in told[0]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_the_doctor_names_tables_of_the_same_name_elsewhere(url: str) -> None:
    from psycopg import connect, sql

    place, _, table = url.partition("?table=")
    with connect(place, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS elsewhere")
        connection.execute(sql.SQL("CREATE TABLE elsewhere.{} ()").format(sql.Identifier(table)))
    with interlock.connect(url) as locks:
        (check,) = [each for each in locks.doctor() if each.name == "tables"]
    assert (check.status, "elsewhere" in check.detail) == ("warn", True)


OTHER_BOOT = """
import sys
import interlock
try:
    print(bool(interlock.connect(sys.argv[1]).lock("x").acquire(timeout=0.3)))
except interlock.StoreError as error:
    print("refused")
"""


@pytest.mark.parametrize("url", ["file", "sqlite"], indirect=True)
@pytest.mark.parametrize("what", ["--bind boot_id /proc/sys/kernel/random/boot_id", "-t tmpfs none /proc"])
def test_a_container_with_another_boot_id_leaves_holders_alone(what: str, url: str, tmp_path: Path) -> None:
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("needs root, to give another process another boot id")
    (tmp_path / "boot_id").write_text("00000000-0000-4000-8000-000000000000\n")
    (tmp_path / "play.py").write_text(OTHER_BOOT)
    with interlock.connect(url) as locks:
        grant = locks.lock("x").acquire()
        words = ["unshare", "-m", "sh", "-c", f'mount {what} && exec "$@"', "sh", sys.executable, "play.py", url]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=True)
        assert done.stdout.strip() in ("False", "refused")
        assert grant.release()
