"""Downgrades on servers: a reply that is cut off, and more readers than one step lets in."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

import interlock
from interlock.core.claims import SEPARATOR, USING, WRITER_UNITS, Claim, LockSpec
from interlock.runtime._threads import fresh_id
from interlock.testing.waiting import eventually
from tests.servers import Proxy
from tests.support.client_actors import SYNC_AND_ASYNC, side
from tests.support.stores import ROWS

READERS = 1010  # a step promotes 250 on Redis, 1,000 on PostgreSQL


def url_of(name: str, folder: Path) -> str:
    """Return the URL of a store."""
    url = next(row for row in ROWS if row.name == name).place(folder).url
    assert url is not None
    return url


@pytest.mark.parametrize("sync_or_async", SYNC_AND_ASYNC)
@pytest.mark.parametrize(
    ("name", "step"), [("redis", b"EVALSHA"), ("postgresql", b"interlock_adopt"), ("etcd", b"request_put")]
)
def test_a_downgrade_whose_reply_is_cut_lets_the_readers_in(
    name: str, step: bytes, sync_or_async: str, tmp_path: Path
) -> None:
    url, lock = url_of(name, tmp_path), fresh_id()
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    with (
        Proxy(where.hostname, where.port) as proxy,
        interlock.connect(url) as eye,
        side(sync_or_async, url.replace(f":{where.port}", f":{proxy.port}")) as one,
        side(sync_or_async, url) as other,
    ):
        warm = one.do(one.locks.rwlock(fresh_id()).write().acquire)
        one.do(warm.downgrade)
        grant = one.do(one.locks.rwlock(lock).write().acquire)
        reader = other.start(other.locks.rwlock(lock).read().acquire)
        eventually(lambda: len(eye.claims(lock)) == 2)
        proxy.cut_after_request(step)
        one.do(grant.downgrade)
        assert proxy.cuts == 1
        assert reader.result(4).held
        assert [(view.kind, view.state) for view in eye.claims(lock)] == [("reader", USING)] * 2
        assert eye.claims(lock)[0].fence == grant.fence
        assert one.do(grant.release) is True
        assert other.do(reader.result().release) is True


@pytest.mark.parametrize("name", ["redis", "postgresql", "memory"])
def test_a_downgrade_lets_in_more_readers_than_one_step(name: str, tmp_path: Path) -> None:
    spec = LockSpec(f"{SEPARATOR}{fresh_id()}", WRITER_UNITS, WRITER_UNITS, 600.0)
    store = next(row for row in ROWS if row.name == name).place(tmp_path).open()
    queue = store.queue()
    try:
        writer, *readers = (Claim(fresh_id(), spec._replace(units=units)) for units in (WRITER_UNITS, *[1] * READERS))
        queue.enter(writer, None, False, False)
        for claim in readers:
            queue.enter(claim, queue.subscribe(), True, False)
        assert queue.adopt(spec.key, writer.id, writer._replace(spec=spec._replace(units=1))) is not None
        assert [view.state for view in queue.look(spec.key)] == [USING] * (1 + READERS)
        queue.evict(spec.key, None)
    finally:
        queue.close()
