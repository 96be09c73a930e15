"""What the documentation shows passes `mypy --strict`, and the types say what comes."""

import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """
import interlock
from typing import assert_type

locks = interlock.connect("memory://types")
lock = locks.lock("a", timeout=5)

with lock as grant:
    assert_type(grant, interlock.Grant)
with lock.acquire(timeout=5) as held:
    fence: int = held.fence
tried = lock.acquire(False)
assert_type(tried, interlock.Grant | None)
if found := lock.acquire(timeout=1):
    found.release()

@locks.guard("user:{id}")
def waits(id: int) -> str:
    return "done"

@locks.guard("user:{id}", on_busy="skip")
def skips(id: int) -> str:
    return "done"

@locks.once("user:{id}", keep=60)
def once(id: int) -> dict[str, int]:
    return {"id": id}

assert_type(waits(1), str)
assert_type(skips(1), str | None)
assert_type(once(1), dict[str, int])

async def tasks() -> None:
    alocks = interlock.aconnect("memory://types")
    async with await alocks.lock("a").acquire(timeout=5) as grant:
        await grant.release()

    @alocks.guard("user:{id}")
    async def waits(id: int) -> str:
        return "done"

    assert_type(await waits(1), str)
"""
BAD = [
    ("tried = locks.lock('a').acquire(False)\ntried.release()", "union-attr"),
    ("locks.guard('a', on_busy='later')", "call-overload"),
    ("locks.lock('a', ttl='long')", "call-overload"),
]


def check(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run mypy on a program."""
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(tmp_path / "program.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )


def test_what_is_documented_passes(tmp_path: Path) -> None:
    done = check(tmp_path, GOOD)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_is_wrong_does_not(tmp_path: Path) -> None:
    program = "import interlock\nlocks = interlock.connect('memory://types')\n"
    told = check(tmp_path, program + "\n".join(text for text, _ in BAD)).stdout
    for _, code in BAD:
        assert f"[{code}]" in told
