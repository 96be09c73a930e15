"""The reply to a request of any operation is lost, at real servers behind a proxy: answers are true, no orphan stays.

A generated table: store, colour, operation, kind of loss, and which reply is lost.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

import pytest

import interlock
from interlock.core.errors import StoreError
from interlock.testing.store_fixture import TASKS
from interlock.testing.waiting import eventually, moment, since
from tests.servers import EtcdServer, MariaServer, PostgresServer, Proxy, RedisServer, serving
from tests.support.client_actors import SYNC_AND_ASYNC, Side, side

IO_TIMEOUT = 1.0  # seconds
WAIT = 1.5  # seconds that an acquire waits
BUSY = 1.5  # seconds for a busy machine
OUTAGE = 0.5  # seconds
ORPHAN = 2.0 + OUTAGE + BUSY  # seconds after an error in which an orphan is taken out
REPLIES = 3  # the first, the second or the third reply is lost
SERVERS: dict[str, tuple[str, Callable[[], Any], str]] = {
    "redis": ("redis", lambda: RedisServer("redis"), "socket_timeout"),
    "postgresql": ("postgres", PostgresServer, "timeout"),
    "mariadb": ("mariadb", MariaServer, "timeout"),
    "etcd": ("etcd", EtcdServer, "timeout"),
}
FAULTS: dict[str, dict[str, Any]] = {"cut": {}, "swallowed": {"swallow": True}, "cut by an outage": {"away": OUTAGE}}


class Case:
    """One operation under a fault.

    Args:
        ours: the client behind the proxy.
        eye: a client of the server itself.
        tasks: True if `ours` is of tasks.

    Attributes:
        name: of the lock.
    """

    def __init__(self, ours: Side, eye: Any, tasks: bool) -> None:
        self.ours, self.eye, self.tasks = ours, eye, tasks
        self.name = uuid4().hex

    def token(self) -> str:
        """Return the token of a claim that another program has detached."""
        return str(self.eye.lock(self.name).acquire().detach())

    def ids(self) -> list[str]:
        """Return the ids of the claims."""
        return [view.id for view in self.eye.claims(self.name) if view.state != "done"]

    def discard(self, token: str) -> None:
        """Release the claim of a token, if there is one."""
        with suppress(interlock.LockLost):
            self.eye.release(token)


Prepared: TypeAlias = tuple[Callable[[], Any], Callable[[bool], Any]]
"""The operation, which checks its answer; and what cleans up after it, with True if it raised an error."""


def acquire(case: Case, **how: Any) -> Prepared:
    def call() -> None:
        grants.append(case.ours.take(case.name, **how))
        assert case.ids() == [grants[0].id]

    grants: list[Any] = []
    return call, lambda failed: failed or case.ours.do(grants[0].release) is True


def wait(case: Case) -> Prepared:
    holder = case.eye.lock(case.name).acquire()

    def call() -> None:
        assert case.ours.take(case.name, timeout=WAIT) is None

    return call, lambda failed: holder.release()


def release(case: Case) -> Prepared:
    grant = case.ours.take(case.name)

    def call() -> None:
        assert case.ours.do(grant.release) is True

    return call, lambda failed: not failed or call()


def renew(case: Case) -> Prepared:
    grant = case.ours.take(case.name)

    def call() -> None:
        assert case.ours.do(grant.renew) is True

    return call, lambda failed: grant.held and case.ours.do(grant.release) is True


def attach(case: Case) -> Prepared:
    token = case.token()
    grants: list[Any] = []

    def call() -> None:
        grants.append(case.ours.do(case.ours.locks.attach, token))

    return call, lambda failed: case.discard(token) if failed else case.ours.do(grants[0].release) is True


def detach(case: Case) -> Prepared:
    grant = case.ours.take(case.name)
    tokens: list[str] = []

    def call() -> None:
        tokens.append(case.ours.do(grant.detach))

    def clean(failed: bool) -> bool:
        if failed:
            case.ours.do(grant.release)
        return failed or case.eye.release(tokens[0]) is True

    return call, clean


def release_token(case: Case) -> Prepared:
    token = case.token()

    def call() -> None:
        assert case.ours.do(case.ours.locks.release, token) is True

    return call, lambda failed: not failed or case.discard(token)


def renew_token(case: Case) -> Prepared:
    token = case.token()

    def call() -> None:
        assert case.ours.do(case.ours.locks.renew, token) is True

    return call, lambda failed: case.eye.release(token) is True


def forget(case: Case) -> Prepared:
    case.eye.once(case.name, keep=60).run(lambda: 1)

    def call() -> None:
        assert case.ours.do(case.ours.locks.forget, case.name) is True
        assert case.eye.claims(case.name) == []

    return call, lambda failed: None


def evict(case: Case, alone: bool) -> Prepared:
    one, two = (case.eye.rwlock(case.name).read().acquire() for _ in range(2))

    def call() -> None:
        removed = case.ours.do(case.ours.locks.evict, case.name, *([one.id] if alone else []))
        assert (removed, case.ids()) == ((1, [two.id]) if alone else (2, []))

    return call, lambda failed: case.eye.evict(case.name)


def claims(case: Case) -> Prepared:
    grant = case.eye.lock(case.name).acquire()

    def call() -> None:
        assert [view.id for view in case.ours.claims(case.name)] == [grant.id]

    return call, lambda failed: grant.release()


def complete(case: Case) -> Prepared:
    runs: list[int] = []

    def work() -> int:
        runs.append(1)
        return 7

    async def work_of_tasks() -> int:
        return work()

    def call() -> None:
        once = case.ours.locks.once(case.name, keep=60)
        assert case.ours.do(once.run, work_of_tasks if case.tasks else work) == 7
        assert case.eye.once(case.name, keep=60).run(lambda: 8) == 7
        assert runs == [1]

    return call, lambda failed: case.eye.forget(case.name)


OPERATIONS: dict[str, Callable[[Case], Prepared]] = {
    "acquire": partial(acquire, timeout=WAIT),
    "try": partial(acquire, blocking=False),
    "wait": wait,
    "release": release,
    "renew": renew,
    "attach": attach,
    "detach": detach,
    "release a token": release_token,
    "renew a token": renew_token,
    "forget": forget,
    "evict one": partial(evict, alone=True),
    "evict all": partial(evict, alone=False),
    "claims": claims,
    "complete": complete,
}
WITHIN_A_TIME = ("acquire", "try", "wait")
"""What may raise an error when a reply is swallowed, because the caller's time is over."""


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of each kind, which knows the name of its option for the I/O time-out."""
    kind, make, option = SERVERS[request.param]
    for server in serving(kind, make):
        server.option = option
        yield server


@pytest.fixture(scope="module")
def proxy(server: Any) -> Iterator[Proxy]:
    """A proxy in front of the server."""
    with Proxy(server.host, server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def eye(server: Any) -> Iterator[Any]:
    """A client of the server itself."""
    with interlock.connect(server.url) as eye:
        yield eye


@pytest.fixture
def behind(server: Any, proxy: Proxy) -> str:
    """The URL of the server behind the proxy."""
    url = server.url.replace(f":{server.port}", f":{proxy.port}")
    return f"{url}{'&' if '?' in url else '?'}{server.option}={IO_TIMEOUT:g}"


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("sync_or_async", SYNC_AND_ASYNC)
def test_an_operation_with_a_lost_reply_tells_the_truth(
    proxy: Proxy, eye: Any, behind: str, sync_or_async: str, fault: str, operation: str
) -> None:
    for number in range(REPLIES):
        with side(sync_or_async, behind) as ours:
            ours.do(ours.take("warm").release)
            case = Case(ours, eye, sync_or_async == TASKS)
            call, clean = OPERATIONS[operation](case)
            before, began, failed = proxy.cuts, moment(), False
            proxy.lose_reply(number, **FAULTS[fault])
            try:
                call()
            except StoreError:
                failed = True
            took = since(began)
            lost = proxy.cuts > before
            if "away" in FAULTS[fault]:
                time.sleep(OUTAGE)
            proxy.restore()
            assert lost or number, "no reply was lost"
            assert took < WAIT + 2 * IO_TIMEOUT + BUSY
            if operation not in WITHIN_A_TIME and "away" not in FAULTS[fault]:
                assert not failed, "there was time to ask again"
            clean(failed)
            eventually(lambda case=case: case.ids() == [], ORPHAN)  # type: ignore[misc]
