"""kill -9 of MariaDB under load, with durable commits and with commits that a crash may lose."""

from uuid import uuid4

import pytest

import interlock
from tests.servers import MariaServer, need
from tests.support.crashes import Load, crashes


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("flush", ["1", "0"], ids=["durable", "forgetting"])
def test_a_killed_server_never_has_two_holders_or_equal_fences(flush: str) -> None:
    """Long holders still hold after the restart; a server without durable commits may have lost their claims."""
    need("mariadb")
    with MariaServer(config={"innodb-flush-log-at-trx-commit": flush}) as server:
        url = f"{server.url}?create=true&grace=2&table=t{uuid4().hex}"
        with interlock.connect(url) as one, interlock.connect(url) as two:
            Load(ttl=2, longest=1.5).survive([one, two], server.restart, crashes(3))
