"""Runs: the judge finds violations of broken locks, and none of ours, on stores with every fault."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import need
from tests.torture.coordinator import run
from tests.torture.history import read
from tests.torture.judge import Verdict, judge
from tests.torture.plan import Plan
from tests.torture.report import as_text
from tests.torture.runs import LOCAL, STORES, tortured
from tests.torture.server import CLOCK

SEED = 18  # with this seed the first process has a listener
APART = ("redis", "django", "valkey+sentinel", "dynamodb")
"""Not run with all faults: Redis and Sentinel have the code of Valkey; Django's settings can be set only once;
DynamoDB has the steps of MariaDB, and botocore takes much time of the processor: `./dev torture dynamodb`."""

ALONE = [
    ("file", "full"),
    ("sqlite", "full"),
    ("valkey+sentinel", "failover"),
    ("postgresql", "failover"),
    ("valkey", "ahead"),
    ("mariadb", "failover"),
    pytest.param("file", "foreign", marks=pytest.mark.rare),
    pytest.param("postgresql+advisory", "failover", marks=pytest.mark.rare),
    pytest.param("valkey", "behind", marks=pytest.mark.rare),
    pytest.param("mariadb", "behind", marks=pytest.mark.rare),
]
"""Faults that a run of a few seconds with all of them might not choose."""

BROKEN = {
    "NoLock": "overlap",
    "PlainDel": "overlap",
    "Overrun": "overlap",
    "Barging": "order",
    "Unrevoked": "overlap",
}


def of_broken(kind: str, folder: Path) -> Verdict:
    """Return the verdict on one kind of lock."""
    plan = Plan(
        "memory://", procs=1, threads=8, secs=1.0, seed=SEED, colour="threads", hot=1, kinds=("lock",),
        connect=f"tests.torture.broken_locks:{kind}",
    )  # fmt: skip
    return judge(read(run(plan, folder)))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_lock_is_convicted(kind: str, tmp_path: Path) -> None:
    assert BROKEN[kind] in {each.rule for each in of_broken(kind, tmp_path).violations}


def test_a_lock_whose_leases_end_early_is_no_broken_one(tmp_path: Path) -> None:
    verdict = of_broken("Locks", tmp_path)
    assert {each.rule for each in verdict.violations} == {"lost"}  # the plan has longer leases
    assert any(op.lost for op in verdict.run.ops)
    assert any(op.queued for op in verdict.run.ops)  # else barging could not be found


@pytest.mark.parametrize(
    "seed", [pytest.param(SEED, id="fixed", marks=pytest.mark.rare), pytest.param(None, id="fresh")]
)
@pytest.mark.parametrize("kind", [kind for kind in STORES if kind not in APART])
def test_a_store_with_every_fault_breaks_no_promise(kind: str, seed: int | None, tmp_path: Path) -> None:
    number = random.SystemRandom().randrange(2**32) if seed is None else seed
    # A large slack, for a machine that runs several tests at once.
    verdict = tortured(
        kind, tmp_path, procs=2, threads=2, secs=4.0 if kind == "etcd" else 3.0, seed=number, every=0.25, slack=10.0
    )
    print(as_text(verdict))
    assert verdict.violations == [], f"seed {number}"  # the seed, for the summary of the test run
    # Opening a session of advisory locks takes a dozen statements, for which a busy machine needs seconds.
    assert verdict.outcomes["ok"] > (0 if "advisory" in kind else 20)
    assert verdict.run.faults


@pytest.mark.parametrize("kind", [kind for kind in STORES if kind not in APART and "advisory" not in kind])
def test_work_is_done_once_when_replies_are_reordered(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    secs = 10.0 if request.config.getoption("thin") else 60.0
    number = random.SystemRandom().randrange(2**32)
    verdict = tortured(
        kind, tmp_path, procs=2, threads=6, secs=secs, seed=number, every=2.0, slack=10.0, hot=2,
        kinds=("lock", "once", "once", "once", "token", "attach", "attach", "evict"),
        faults=() if kind in LOCAL else ("scatter",),
    )  # fmt: skip
    print(as_text(verdict))
    assert verdict.violations == [], f"seed {number}"
    done = [op for op in verdict.run.ops if op.done]
    attached = [op for op in verdict.run.ops if op.kind == "attach" and op.ok]
    assert len(done) > 10
    assert len(attached) > 5


@pytest.mark.parametrize(("kind", "fault"), ALONE)
def test_nothing_is_found_after_a_fault_alone(kind: str, fault: str, tmp_path: Path) -> None:
    if fault == "full" and os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can mount a small file system")
    if fault in CLOCK:
        need("clock")
    verdict = tortured(
        kind, tmp_path, procs=2, threads=2, secs=2.5, seed=SEED, every=0.3, slack=10.0, faults=(fault,)
    )
    print(as_text(verdict))
    assert verdict.violations == []
    assert verdict.outcomes["ok"] > 5
    assert verdict.faults[fault]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tests.torture", *words], capture_output=True, text=True)


def test_nothing_is_found_in_a_site_of_django(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = command("django", "--procs=2", "--threads=2", "--secs=3", "--slack=10", "--markdown", str(page))
    assert done.returncode == 0, done.stdout + done.stderr
    heads, _, row = ([cell.strip() for cell in line.split("|")] for line in page.read_text().splitlines())
    assert row[heads.index("store")] == "django"
    assert row[heads.index("violations")] == "0"
    assert int(row[heads.index("operations")].partition(":")[0].replace(",", "")) > 20


def test_a_run_at_a_url_is_judged_again_from_its_history(tmp_path: Path) -> None:
    done = command(
        tmp_path.as_uri(), "--procs=2", "--threads=2", "--secs=1", "--slack=10", "--fault=kill", "--seed=5"
    )
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "seed 5"), done.stdout + done.stderr
    verdict, history = re.search(rf"{tmp_path.as_uri()}: (.*)\nhistory: (.*)", done.stdout, re.DOTALL).groups()
    assert command("--judge", history.strip()).stdout.strip() == verdict


def test_a_fault_that_the_store_can_not_have_is_no_success() -> None:
    done = command("memory://", "--secs=1", "--fault=pause")
    assert (done.returncode, "can make pause" in done.stderr) == (75, True)
