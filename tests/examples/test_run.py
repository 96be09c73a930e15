"""The run command of examples/library starts the site, and ends with all its processes."""

import os
import signal
import subprocess
import urllib.request

from interlock.testing.waiting import eventually
from tests.support.library_site import Example, processes_of


def words_of(process: subprocess.Popen[str]) -> list[str]:
    """Return the lines that the site prints, up to its address."""
    said = []
    for line in process.stdout:
        said.extend(line.split())
        if "http://" in line:
            return said
    raise AssertionError(" ".join(said) + process.stderr.read())


def page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return answer.read().decode()


def test_the_site_starts_twice_with_its_data_and_ends_cleanly(
    example: Example,
) -> None:
    told = []
    for ending in (signal.SIGTERM, signal.SIGINT):
        with example.start("./run") as process:
            told += words_of(process)
            address = told[-1]
            assert "A Christmas Carol" in page(address)
            assert "nav-sidebar" in page(address + "static/admin/css/nav_sidebar.css")
            eventually(lambda: len(processes_of(process.pid)) == 4)  # the master and three workers
            os.kill(process.pid, ending)
            assert process.wait(20) == 0
            eventually(lambda: not processes_of(process.pid))
    assert told.count("password:") == 1  # shown at the first start only
    assert told.count("books,") == 1
