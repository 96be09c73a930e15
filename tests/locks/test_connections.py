"""Connections: which store a URL or a client means, what pickles share, and what is said of a wrong one."""

import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock import aconnect, connect
from interlock.core.claims import UNSET, ClaimView, LockSpec
from interlock.core.errors import InvalidArgument, LockTimeout, StoreError
from interlock.core.oldstore import BaseStore
from interlock.locks import connect as module
from interlock.locks.arguments import guard_timeout, is_used, wait_limit
from interlock.client.connect import BUILT_IN, check_url, default_url, open_store
from interlock.client.meant import EXAMPLES, advice_on, scheme_meant
from interlock.client.base import AcquireOptions
from interlock.stores import files
from interlock.stores.memory import MemoryStore


def memory() -> str:
    """Return the URL of a space of its own."""
    return f"memory://{uuid4().hex}"


def test_without_a_url_the_environment_says_where_and_else_each_user_has_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "runtime_folder", lambda: f"{tmp_path}/mine")
    for unset in (None, ""):
        monkeypatch.delenv("INTERLOCK_URL", raising=False)
        if unset is not None:
            monkeypatch.setenv("INTERLOCK_URL", unset)
        assert default_url() == f"file://{tmp_path}/mine"
    open_store(None).close()
    assert (tmp_path / "mine").is_dir()
    monkeypatch.setenv("INTERLOCK_URL", url := memory())
    assert default_url() == url
    for make in (connect, aconnect):
        made: Any = make()
        assert repr(made).endswith(f" on {url}>")
    opened: list[bool] = []
    monkeypatch.setattr(module, "open_store", lambda url, tasks=False: opened.append(tasks) or open_store(url))
    for make in (connect, aconnect):
        make()
    assert opened == [False, True]


@pytest.mark.parametrize("make", [connect, aconnect])
def test_what_comes_in_pickles_has_one_connection_for_each_url_namespace_and_lease(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_connected", {})

    def sent(**settings: Any) -> Any:
        locks = make(f"file://{tmp_path}", **settings)
        try:
            return pickle.loads(pickle.dumps(locks))
        finally:
            locks._session.store.close()

    first = sent(namespace="shop", ttl=7)
    assert sent(namespace="shop", ttl=7) is first
    assert (first.namespace, first._session.ttl, first._session.where) == ("shop", 7, f"file://{tmp_path}")
    others = [sent(ttl=7), sent(namespace="shop"), sent(namespace="shop", ttl=8)]
    assert len({id(each) for each in (first, *others)}) == 4
    assert pickle.loads(pickle.dumps(first._session)) is first._session
    first._session.closed = True
    again = sent(namespace="shop", ttl=7)
    assert again is not first
    assert sent(namespace="shop", ttl=7) is again
    for each in (first, again, *others):
        each._session.store.close()


def test_what_has_no_url_for_another_process_is_not_sent() -> None:
    with (
        connect(memory()) as locks,
        pytest.raises(InvalidArgument, match="its locks are this process's own; connect"),
    ):
        pickle.dumps(locks)
    with interlock.Locks(MemoryStore.from_url(module.urlsplit(memory()))) as made:
        assert repr(made) == "<Locks on MemoryStore>"
        with pytest.raises(
            InvalidArgument, match=r"^<Locks on MemoryStore> can't be sent.* it was not made from a URL;"
        ):
            pickle.dumps(made)


def test_a_connection_shows_its_namespace_if_it_has_one() -> None:
    with connect(url := memory(), namespace="shop") as locks:
        assert repr(locks) == f"<Locks on {url}, namespace='shop'>"
        assert repr(locks.rwlock("book")) == f"<ReadWrite 'book' of {locks!r}>"
    assert locks._session.closed
    with pytest.raises(StoreError, match="this connection was closed: connect again"):
        locks.claims()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory://?namespace=a", "a URL does not say the namespace: give it to connect(url, namespace=…)"),
        ("memory://?x=1&ttl=", "a URL does not say the ttl: give it to connect(url, ttl=…)"),
        ("redis://me:secret@[host", "'redis://me:***@[host' is no store URL: it can't be read"),
        ("redis://[host", "is no store URL: Invalid IPv6 URL"),
        ("rediz://host", "no store has the scheme 'rediz'; did you mean redis://? Installed are: "),
        ("carrier-pigeon://loft", "no store has the scheme 'carrier-pigeon'; installed are: "),
    ],
)
def test_a_url_that_no_store_knows_is_refused_with_the_reason(url: str, said: str) -> None:
    for check in (check_url, open_store):
        with pytest.raises(InvalidArgument) as refused:
            check(url)
        assert said in str(refused.value)
        assert "secret" not in str(refused.value)
        if "installed" in said.lower():
            assert str(refused.value).endswith(", ".join(sorted(BUILT_IN)))
    check_url("memory://")


class Twofold(MemoryStore):
    """A store of which tasks have another kind."""

    @classmethod
    def from_url(cls, url: Any) -> Any:
        """Connect."""
        return url, "for threads"

    @classmethod
    def from_url_for_tasks(cls, url: Any) -> Any:
        """Connect."""
        return url, "for tasks"


def test_tasks_have_a_store_of_their_own_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILT_IN, "twofold", f"{__name__}:Twofold")
    url = module.urlsplit("twofold://x")
    assert open_store("twofold://x") == (url, "for threads")
    assert open_store("twofold://x", tasks=True) == (url, "for tasks")


def test_a_store_that_has_nothing_special_answers_so() -> None:
    class Plain(BaseStore):
        """A store of which nothing is said."""

    url = module.urlsplit("plain://x")
    for open_it in (Plain.from_url, Plain.from_url_for_tasks):
        with pytest.raises(NotImplementedError):
            open_it(url)
    plain = Plain()
    assert (plain.frees_at_death, plain.doctor()) == (False, [])
    plain.doubt("a")


def test_all_but_the_name_and_the_permits_is_given_by_name() -> None:
    with connect(memory()) as locks:
        made: Any = locks
        for make in (made.lock, made.rlock, made.rwlock, made.guard):
            make(name="a")
            with pytest.raises(TypeError):
                make("a", 5)
        made.semaphore(name="a", permits=1)
        with pytest.raises(TypeError):
            made.semaphore("a", 2, 1)
    for connection in (connect, aconnect):
        wrong: Any = connection
        with pytest.raises(TypeError):
            wrong("memory://", "shop")
        assert wrong(url="memory://", namespace="shop").namespace == "shop"


class Client(OrderedDict[str, str]):
    """An object of a class that is below one of another module."""


def test_a_client_is_known_by_the_module_of_its_class_or_of_what_that_is_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(module, "_load", lambda where: lambda client, tasks: given.append((where, client, tasks)))
    monkeypatch.setattr(module, "CLIENTS", {"collections": "there"})
    open_store(client := Client())
    open_store(client, tasks=True)
    assert given == [("there", client, False), ("there", client, True)]
    with pytest.raises(
        InvalidArgument, match=r"^5 is neither a store URL nor a client .* or a client of collections$"
    ):
        open_store(5)


@pytest.mark.parametrize(("argument", "value"), [("namespace", "a\0b"), ("namespace", "x" * 1001), ("ttl", 0.09)])
@pytest.mark.parametrize("make", [connect, aconnect])
def test_arguments_are_checked_before_a_store_is_opened(make: Any, argument: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=argument):
        make(f"file://{tmp_path}/new", **{argument: value})
    assert not (tmp_path / "new").exists()


def test_a_store_of_another_version_and_one_that_can_not_be_imported_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "old-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: old\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[interlock.stores]\nold = collections:Counter\nlost = no_such_one:X\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    check_url("old://x")
    with pytest.raises(InvalidArgument, match="the store of old:// was written for another version"):
        connect("old://x")
    with pytest.raises(
        StoreError, match=r"^the store of lost:// can't be imported; install what it needs: No module"
    ):
        check_url("lost://x")
    with pytest.raises(InvalidArgument, match=r"did you mean lost://.*, lost, .*, old, "):
        check_url("lst://x")


KNOWN = sorted(BUILT_IN)


@pytest.mark.parametrize(
    ("scheme", "meant"),
    [
        ("postgres", "postgresql"), ("mem", "memory"), ("rediss", "rediss"), ("reddis", "redis"), ("xyz", ""),
        ("sqlit", "sqlite"), ("", ""),
    ],
)  # fmt: skip
def test_a_scheme_that_is_nearly_right_is_understood(scheme: str, meant: str) -> None:
    assert scheme_meant(scheme, KNOWN) == meant
    assert scheme_meant("redis", {"redis+cluster", "redis+sentinel"}) == "redis+cluster"
    assert scheme_meant("postgres", {"memory"}) == ""


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("/var/lib", "file:///var/lib"), ("/a/../b", "file:///b"), ("C:\\locks", None), ("c:/locks", None),
        ("localhost:6379", "redis://localhost:6379"), ("me:secret@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("host:26379", "redis+sentinel://host:26379"), ("host:3306", "mariadb://host:3306"), ("host:81", None),
        ("redis:host", "redis://host"), ("redis:/host", "redis://host"), ("redis:6379", "redis://redis:6379"),
        ("redis:8/", None),
        ("REDIS:host", "redis://host"), ("file:a/b", "file:///a/b"), ("unix:/run/s", "unix:///run/s"),
        ("memory", "memory://"), ("memory:", "memory://"), ("redis", None), ("redis:", None), ("redis:/", None),
        ("file:", None), ("nothing:at", None), ("", None),
    ],
)  # fmt: skip
def test_what_is_no_url_is_told_what_was_meant(url: str, meant: str | None) -> None:
    assert advice_on(url, KNOWN) == (EXAMPLES if meant is None else f"did you mean {meant!r}?")


def test_a_folder_below_home_or_here_is_told_as_a_whole() -> None:
    assert advice_on("~/locks", KNOWN) == f"did you mean 'file://{os.path.expanduser('~')}/locks'?"
    assert advice_on("./locks", KNOWN) == f"did you mean 'file://{os.getcwd()}/locks'?"


def test_a_store_without_transactions_of_the_caller_says_which_has_them() -> None:
    with connect(url := memory()) as locks, pytest.raises(InvalidArgument) as refused:
        locks.lock("a", connection=object())
    assert str(refused.value).startswith(f"{url} has no locks that a transaction of yours can hold: connect to")


def test_a_lock_in_a_transaction_of_the_caller_has_a_timeout_and_nothing_else() -> None:
    with connect(memory(), namespace="shop") as locks:
        made: list[Any] = []
        locks.store.lock_in_transaction = lambda *given: made.append(given)  # type: ignore[misc]
        here = object()
        locks.lock("a", connection=here)
        locks.lock("a", connection=here, timeout=2)
        spec = LockSpec("shop\0a")
        assert made == [(spec, None, here), (spec, 2.0, here)]
        lock: Any = locks.lock
        for other in ({"ttl": 3}, {"label": ""}, {"renew": False}, {"on_lost": print}, {"at_least": 1}):
            with pytest.raises(InvalidArgument, match="no lease and no label: give only a timeout"):
                lock("a", connection=here, **other)


def test_a_call_without_a_limit_may_be_given_one_and_the_locks_own_counts_else() -> None:
    with connect(memory()) as locks, locks.lock("a"):
        hasty = locks.lock("a", timeout=0.01)
        assert hasty.acquire() is hasty.acquire(timeout=0) is hasty.acquire(False) is None
        assert locks.lock("a").acquire(1, 0) is None  # type: ignore[arg-type]
        with pytest.raises(LockTimeout, match=r"within 0.01 s"):
            hasty.__enter__()
        with pytest.raises(InvalidArgument, match="blocking is True or False, not 2"):
            hasty.acquire(2)  # type: ignore[arg-type]


def test_how_a_lock_acquires_is_checked_when_it_is_made() -> None:
    with connect(memory(), ttl=5) as locks:
        wrong: Any = locks.lock
        with pytest.raises(InvalidArgument, match=r"^on_lost is a function of one argument, the grant, not 5$"):
            wrong("a", on_lost=5)
        with pytest.raises(InvalidArgument, match=r"^renew is True or False, not 1$"):
            wrong("a", renew=1)
        both = locks.rwlock("a")
        made: list[Any] = [locks.lock("a"), locks.rlock("a"), locks.semaphore("a", 1), both.read(), both.write()]
        assert [each._options for each in made] == [(None, True, None, 0.0)] * 5
        assert [each._spec[3:] for each in made] == [(5.0, "")] * 5
        assert locks.lock("a", timeout=2)._options == (2.0, True, None, 0.0)
        assert locks.lock("a", renew=False)._options == (None, False, None, 0.0)
        assert locks.lock("a", on_lost=print)._options == (None, True, print, 0.0)
        assert locks.lock("a", timeout=2, renew=False, on_lost=print)._options == (2.0, False, print, 0.0)
        leases = [locks.lock("a", **given)._spec.ttl for given in ({}, {"ttl": 2}, {"at_least": 4}, {"at_least": 6})]
        assert leases == [5.0, 2.0, 5.0, 6.0]
        assert locks.lock("a", at_least=4)._options.at_least == 4.0
        assert locks.lock("a", label="x")._spec.label == "x"


def test_a_semaphore_takes_no_more_units_than_it_has_permits() -> None:
    with connect(memory()) as locks:
        assert locks.semaphore("a", 2, units=2)._spec[1:3] == (2, 2)
        assert locks.semaphore("a", 2)._spec[1:3] == (1, 2)
        with pytest.raises(InvalidArgument, match=r"^3 units of 2 permits can never be had; ask for fewer$"):
            locks.semaphore("a", 2, units=3)
        with pytest.raises(InvalidArgument, match="permits is a whole number"):
            locks.semaphore("a", 0)


def test_several_are_taken_in_the_order_of_their_names_and_none_twice() -> None:
    with connect(memory()) as locks, connect(memory()) as others:
        with locks.all("b", "a", locks.lock("c")) as grants:
            assert [each.name for each in grants] == ["a", "b", "c"]
            assert grants.fences == {each.name: each.fence for each in grants}
        for parts, said in (
            ((), "at least one name"),
            (("a", "b", "a"), "the name 'a' twice"),
            (("a", others.lock("b")), "of its own connection only"),
        ):
            with pytest.raises(InvalidArgument, match=said):
                locks.all(*parts)


def test_a_lock_is_used_by_holders_and_not_by_those_who_wait() -> None:
    waiter = ClaimView("a", "x", "pending", 1, 1, None, "host", 7, "t", "", 0.0, 30.0)
    assert is_used([waiter]) is False
    assert is_used([waiter, waiter._replace(state="using")]) is True


def test_how_long_an_acquire_may_wait_is_its_own_or_the_locks() -> None:
    options = AcquireOptions(2.0)
    ways: Any = [
        (True, UNSET),
        (1, UNSET),
        (False, UNSET),
        (0, UNSET),
        (True, None),
        (True, 5),
        (True, 0),
        (False, None),
    ]
    assert [wait_limit(options, *way) for way in ways] == [2.0, 2.0, 0.0, 0.0, None, 5.0, 0.0, 0.0]


def test_a_guard_waits_unless_it_is_told_not_to() -> None:
    ways: Any = [("wait", None), ("raise", None), ("skip", None), ("wait", 3), ("raise", 3), ("skip", 0.5)]
    assert [guard_timeout(*way) for way in ways] == [None, 0, 0, 3, 3, 0.5]
    with pytest.raises(InvalidArgument, match=r"^on_busy is 'wait', 'raise' or 'skip', not 'stop'$"):
        guard_timeout("stop", None)
