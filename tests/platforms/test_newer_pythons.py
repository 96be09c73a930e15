"""Pythons that are newer than the machine's, from Debian's unstable suite."""

from collections.abc import Callable

import pytest

from tests.platforms.conftest import SAID, failures, totals
from tests.servers import Missing, need
from tests.servers.debian import VERSIONS, DebianPython

LIMIT = 1800  # seconds
SERVERS = "etcd or mariadb or mysql or postgresql or redis or s3 or valkey"
CHOICE = ("tests/client", "tests/contract", "-k", f"(client or memory or file) and not ({SERVERS})")


@pytest.mark.rare
@pytest.mark.usefixtures("takes_long")
@pytest.mark.timeout(LIMIT + 300)
@pytest.mark.parametrize("version", VERSIONS)
def test_newer_pythons_keep_the_contract(version: str, record_property: Callable[[str, object], None]) -> None:
    need("debian")
    try:
        python = DebianPython(version)
    except Missing as error:
        pytest.skip(f"NOT TESTED on Python {version}: {error}")
    ran = python.run("-m", "pytest", "-q", "-n", "2", "--thin", *CHOICE, timeout=LIMIT)
    record_property(SAID, f"Python {version}: {totals(ran.stdout)}")
    if ran.returncode:
        pytest.fail(failures(ran.stdout), pytrace=False)
