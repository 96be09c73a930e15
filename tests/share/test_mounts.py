"""A shared folder behind two mounts of real network file systems; only `./dev test all` runs these tests."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

import interlock
from interlock.core.errors import StoreError
from interlock.core.line import EMPTY, encode
from interlock.stores.share.lines import ShareLines
from interlock.stores.share.system import System
from interlock.testing.other_process import Remote, logged
from interlock.testing.waiting import eventually
from tests.servers import GlusterMounts, Mounts, RcloneMounts, SshfsMounts, need
from tests.support.brief_share import MOUNTS
from tests.torture.coordinator import run
from tests.torture.history import read
from tests.torture.judge import judge
from tests.torture.plan import Plan
from tests.torture.report import as_text
from tests.torture.runs import BRIEF

pytestmark = pytest.mark.rare
KINDS: dict[str, type[Mounts]] = {"sshfs": SshfsMounts, "glusterfs": GlusterMounts}


@pytest.fixture(scope="module", params=KINDS)
def mounts(request: pytest.FixtureRequest) -> Iterator[Mounts]:
    """Two mounts of one folder."""
    need(request.param)
    with KINDS[request.param]() as mounted:
        yield mounted


@pytest.fixture
def folders(mounts: Mounts, request: pytest.FixtureRequest) -> list[Path]:
    """An empty folder, by its paths on both mounts."""
    name = f"locks-{abs(hash(request.node.name))}"
    made = [path / name for path in mounts.paths]
    made[0].mkdir()
    made[0].chmod(0o2770)
    eventually(made[1].is_dir)
    return made


def test_processes_on_both_mounts_count_without_a_lost_update(folders: list[Path], tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    with ExitStack() as ending:
        remotes = [Remote(f"share://{folders[number % 2]}") for number in range(4)]
        for remote in remotes:
            ending.callback(remote.close)
            remote.start(f"count(url, 'book', {log!r}, 25, 0.001)")
        for remote in remotes:
            remote.answer(200)
    numbers, fences = logged(log)
    assert numbers == list(range(1, 101))
    assert fences == sorted(set(fences))


def test_a_killed_holder_on_one_mount_frees_the_other(folders: list[Path]) -> None:
    remote = Remote(f"share://{folders[0]}")
    fence = remote.do("grant = locks.lock('book', ttl=10).acquire(); result = grant.fence")
    remote.kill()
    with interlock.connect(f"share://{folders[1]}") as locks:
        assert locks.lock("book").acquire(timeout=0) is None
        grant = locks.lock("book").acquire(timeout=30)
        assert grant is not None
        assert grant.fence > fence
        grant.release()
    remote.close()


def test_one_birth_of_a_name_wins_over_both_mounts(folders: list[Path]) -> None:
    clients, start = (
        [ShareLines(str(folders[number % 2]), False, System()) for number in range(4)],
        threading.Barrier(4),
    )

    def born(client: ShareLines, key: str) -> bool:
        _, _, now = client.load(key)
        start.wait(60)
        return client.swap(key, None, encode(EMPTY._replace(max_fence=1)), now) is not None

    with ThreadPoolExecutor(4) as pool:
        for turn in range(20):
            assert sum(pool.map(born, clients, [f"\0book {turn}"] * 4)) == 1


def test_torture_over_both_mounts_breaks_no_promise(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MOUNTS, ":".join(str(folder) for folder in folders))
    plan = Plan(
        f"share://{folders[0]}", procs=4, threads=2, secs=15.0, every=0.5, slack=10.0, faults=("kill", "stop"),
        **BRIEF | {"ttl": 2.0},
    )  # fmt: skip
    verdict = judge(read(run(plan, tmp_path / "run")))
    print(as_text(verdict))
    assert verdict.violations == []
    assert verdict.outcomes["ok"] > 100
    assert verdict.faults["kill"]
    assert verdict.faults["stop"]


def test_a_mount_that_only_emulates_files_is_refused() -> None:
    need("rclone")
    with RcloneMounts() as mounts:
        folder = mounts.paths[0] / "locks"
        folder.mkdir()
        with interlock.connect(f"share://{folder}") as locks:
            with pytest.raises(StoreError, match="only emulates a file system"):
                locks.lock("book").acquire(timeout=0)
