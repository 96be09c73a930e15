"""The examples of the documentation pass `mypy --strict` and strict pyright, with the right types."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

GOOD = """
import interlock
from typing import assert_type

locks = interlock.connect("memory://types")
lock = locks.lock("a", timeout=5)

with lock as grant:
    assert_type(grant, interlock.Grant)
held = lock.acquire(timeout=5)
assert_type(held, interlock.Grant | None)
if held is not None:
    with held:
        fence: int = held.fence
tried = lock.acquire(False)
assert_type(tried, interlock.Grant | None)
if found := lock.acquire(timeout=1):
    found.release()

@lock
def locked(id: int) -> str:
    return "done"

@locks.guard("user:{id}")
def waits(id: int) -> str:
    return "done"

@locks.guard("user:{id}", on_busy="skip")
def skips(id: int) -> str:
    return "done"

@locks.once("user:{id}", keep=60)
def once(id: int) -> dict[str, int]:
    return {"id": id}

@locks.once("user:{id}", keep=60, on_busy="skip")
def once_skips(id: int) -> dict[str, int]:
    return {"id": id}

def load() -> list[int]:
    return [1]

assert_type(locked(1), str)
assert_type(waits(1), str)
assert_type(skips(1), str | None)
assert_type(once(1), dict[str, int])
assert_type(once_skips(1), dict[str, int] | None)
assert_type(locks.once("a", keep=60).run(load), list[int])
with locks.once("a", keep=60) as run:
    assert_type(run.due, bool)
    if run.due:
        assert run.grant is not None
        run.result = run.grant.fence
assert_type(locks.forget("a"), bool)

election = locks.election("leader", ttl=10, on_elected=print, on_deposed=lambda election: print(election.term))

def work(election: interlock.Election) -> None:
    while election.leading:
        assert_type(election.term, int)
        election.stop()

election.run(work)
with locks.election("leader") as standing:
    assert_type(standing, interlock.Election)
    assert_type(standing.wait(timeout=1), bool)
    assert_type(standing.leading, bool)

with locks.lock("a", at_most=5, on_wanted=lambda grant: print(grant.fence)) as limited:
    assert_type(limited.wanted, bool)
    token = limited.detach()
    assert_type(token, str)
assert_type(locks.attach(token, ttl=5), interlock.Grant)
with locks.attach(token) as attached:
    assert_type(attached.fence, int)
assert_type(locks.renew(token, ttl=5), bool)
assert_type(locks.release(token), bool)
cancel = interlock.Cancel()
assert_type(lock.acquire(False, cancel=cancel), interlock.Grant | None)

with locks.one_of("gpu", ["cuda:0", "cuda:1"]) as gpu:
    assert_type(gpu, interlock.Grant)
    assert_type(gpu.item, str)
with locks.semaphore("port", 10) as port:
    assert_type(port.slot, int)
with locks.all("a", "b") as both:
    assert_type(both, interlock.Grants)
with locks.rwlock("a").read() as reader:
    assert_type(reader, interlock.Grant)
with locks.rlock("a") as again:
    assert_type(again, interlock.Grant)


async def tasks() -> None:
    alocks = interlock.aconnect("memory://types")
    alock = alocks.lock("a")
    async with alock as grant:
        assert_type(grant, interlock.AsyncGrant)
    held = await alock.acquire(timeout=5)
    assert_type(held, interlock.AsyncGrant | None)
    if held is not None:
        async with held:
            await held.renew()
    async with await alock.acquire() as surely:
        await surely.release()
    assert_type(await alock.acquire(False), interlock.AsyncGrant | None)

    @alocks.guard("user:{id}")
    async def waits(id: int) -> str:
        return "done"

    @alocks.once("user:{id}", keep=60)
    async def once(id: int) -> dict[str, int]:
        return {"id": id}

    async def load() -> list[int]:
        return [1]

    assert_type(await waits(1), str)
    assert_type(await once(1), dict[str, int])
    assert_type(await alocks.once("a", keep=60).run(load), list[int])
    async with alocks.once("a", keep=60) as run:
        if run.due:
            run.result = {"n": 1}

    async def work(election: interlock.AsyncElection) -> None:
        assert_type(election.term, int)

    async with alocks.election("leader") as standing:
        assert_type(standing, interlock.AsyncElection)
        assert_type(await standing.wait(timeout=1), bool)
    await alocks.election("leader").run(work)
    async with alocks.one_of("gpu", ["cuda:0", "cuda:1"]) as gpu:
        assert_type(gpu.item, str)
        token = await gpu.detach()
    assert_type(await alocks.attach(token), interlock.AsyncGrant)
    await alocks.close()
"""
BAD = [
    ("locks.lock('a').acquire(False).release()", "union-attr", "reportOptionalMemberAccess"),
    ("locks.lock('a').acquire(timeout=5).release()", "union-attr", "reportOptionalMemberAccess"),
    ("locks.once('a', keep=1, on_busy='skip').run(str).strip()", "union-attr", "reportOptionalMemberAccess"),
    ("locks.guard('a', on_busy='later')", "call-overload", "reportCallIssue"),
    ("locks.lock('a', ttl='long')", "arg-type", "reportArgumentType"),
    ("locks.guard('a', tll=5)", "call-overload", "reportCallIssue"),
    ("locks.once('a', keep=1, label=5)", "call-overload", "reportCallIssue"),
    ("locks.semaphore('a', 2, tll=5)", "call-arg", "reportCallIssue"),
    ("locks.one_of('a', ['b'], on_wanted=5)", "arg-type", "reportArgumentType"),
    ("locks.election('a').run(lambda: None)", "arg-type", "reportArgumentType"),
]
PYRIGHT = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")], "include": ["program.py"]}


def mypy(folder: Path) -> list[str]:
    """Return the lines of mypy's output for a program."""
    words = ["--strict", "--no-error-summary", "--hide-error-context", "program.py"]
    return told([sys.executable, "-m", "mypy", *words], folder).splitlines()


def pyright(folder: Path) -> list[str]:
    """Return pyright's findings for a program, in the format of mypy's lines."""
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    said = told([sys.executable, "-m", "pyright", "--outputjson"], folder)
    if not said.startswith("{"):
        pytest.skip("NOT TESTED with pyright, which could not get itself from npm")
    found = json.loads(said)
    assert found["summary"]["filesAnalyzed"] == 1
    return [
        f"program.py:{one['range']['start']['line'] + 1}: {one['message']} [{one['rule']}]"
        for one in found["generalDiagnostics"]
    ]


def told(command: list[str], folder: Path) -> str:
    """Return the output of a command."""
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300).stdout


CHECKS = [mypy, pytest.param(pyright, marks=pytest.mark.rare)]


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_documented_passes(check: Callable[[Path], list[str]], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(GOOD)
    assert check(tmp_path) == []


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_wrong_does_not(check: Callable[[Path], list[str]], tmp_path: Path) -> None:
    program = "import interlock\nlocks = interlock.connect('memory://types')\n"
    (tmp_path / "program.py").write_text(program + "\n".join(text for text, *_ in BAD))
    lines = check(tmp_path)
    for number, (_, *codes) in enumerate(BAD, 3):
        code = f"[{codes[check is pyright]}]"
        assert any(line.startswith(f"program.py:{number}:") and code in line for line in lines), (code, lines)
