"""kill -9 of MariaDB under load, both where its commits are durable and where it forgets the last ones."""

from uuid import uuid4

import pytest

import interlock
from tests.servers import MariaServer, need
from tests.support.crashes import Load, crashes


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("flush", ["1", "0"], ids=["durable", "forgetting"])
def test_killed_under_load_it_never_has_two_holders_nor_one_fence_twice(flush: str) -> None:
    """Those who hold for longer hold when it is back; a server that forgets has then forgotten how they got it."""
    need("mariadb")
    with MariaServer(config={"innodb-flush-log-at-trx-commit": flush}) as server:
        url = f"{server.url}?create=true&grace=2&table=t{uuid4().hex}"
        with interlock.connect(url) as one, interlock.connect(url) as two:
            Load(ttl=2, longest=1.5).survive([one, two], server.restart, crashes(3))
