"""Functions compiled by Cython and mypyc run with their locks, or are refused; they never run without."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments.conftest import Run
from tests.servers import need

MODULE = """
import asyncio
import sys
from typing import Any, Iterator
import interlock
locks = interlock.connect(sys.argv[1])
alocks = interlock.aconnect(sys.argv[1])
async def aheld(name: str) -> bool:
    await asyncio.sleep(0.001)
    return await alocks.lock(name).acquire(timeout=0) is None
@alocks.lock("page")
async def decorated(number: int) -> bool:
    return await aheld("page")
@alocks.guard("shelf")
async def guarded(number: int) -> bool:
    return await aheld("shelf")
class Shop:
    @alocks.guard("shop")
    async def method(self) -> bool:
        return await aheld("shop")
async def by_argument(number: int) -> bool:
    return await aheld(f"book:{number}")
@locks.guard("leaf:{number}")
def plain(number: int) -> bool:
    return locks.lock(f"leaf:{number}").acquire(timeout=0) is None
def generator() -> Iterator[bool]:
    yield locks.lock("read").acquire(timeout=0) is None
async def main() -> None:
    print(await decorated(1), await guarded(1), await Shop().method(), plain(1))
    for what in (generator, by_argument):
        try:
            if what is generator:
                print(list(locks.lock("read")(generator)()))
            else:
                print(await alocks.guard("book:{number}")(by_argument)(1))
        except interlock.InvalidArgument as error:
            print(error)
    try:
        print(locks.lock("page")(by_argument)(1))
    except interlock.InvalidArgument as error:
        print(error)
    await alocks.close()
"""
COMPILERS = {
    "mypyc": ["-m", "mypyc", "--ignore-missing-imports", "--follow-imports=silent"],
    "Cython": ["-m", "Cython.Build.Cythonize", "-q", "-i", "-3"],
}


@pytest.mark.rare
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("url", ["file"], indirect=True)
def test_compiled_functions_are_locked_or_refused(compiler: str, url: str, run: Run, tmp_path: Path) -> None:
    need("clock")  # a compiler of C
    pytest.importorskip(compiler, reason=f"NOT TESTED: there is no {compiler} here; pip install {compiler.lower()}")
    (tmp_path / "compiled.py").write_text(MODULE)
    subprocess.run([sys.executable, *COMPILERS[compiler], "compiled.py"], cwd=tmp_path, check=True, timeout=200)
    (tmp_path / "compiled.py").unlink()
    done, generator, argument, other = run("import asyncio, compiled; asyncio.run(compiled.main())", url).splitlines()
    assert done == "True True True True"
    assert generator == "[True]" if compiler == "Cython" else "returned a generator" in generator
    assert argument == "True" if compiler == "Cython" else "mypyc" in argument
    assert "aconnect" in other


BLOCKS = """
import asyncio
async def works(lock, grants, leave):
    async with lock as grant:
        grants.append(grant)
        await leave.wait()
async def releases_early(lock, leave):
    async with lock:
        await lock.release()
        await leave.wait()
async def nested(lock):
    async with lock:
        async with lock:
            pass
def reads(lock):
    with lock as grant:
        yield grant
def nests(lock):
    with lock:
        with lock:
            pass
"""
USES = """
import asyncio, sys, warnings
import interlock
from blocks import nested, nests, reads, releases_early, works
assert "cython" in type(works).__name__, "it is not compiled"
async def tasks():
    async with interlock.aconnect(sys.argv[1]) as locks:
        gpus, grants, leaves = locks.semaphore("gpu", 2), [], [asyncio.Event(), asyncio.Event()]
        both = [asyncio.create_task(works(gpus, grants, leave)) for leave in leaves]
        while len(grants) < 2:
            await asyncio.sleep(0.002)
        leaves[0].set()
        await both[0]
        print([each.held for each in grants])
        leaves[1].set()
        await both[1]
        page, grants, leaves = locks.lock("page"), [], [asyncio.Event(), asyncio.Event()]
        both = [
            asyncio.create_task(releases_early(page, leaves[0])),
            asyncio.create_task(works(page, grants, leaves[1])),
        ]
        while not grants:
            await asyncio.sleep(0.002)
        leaves[0].set()
        await both[0]
        print(grants[0].held)
        leaves[1].set()
        await both[1]
        await nested(locks.rlock("again"))
        print([each.name for each in await locks.claims()])
def threads():
    with interlock.connect(sys.argv[1]) as locks:
        gpus = locks.semaphore("gpu", 2)
        first, second = reads(gpus), reads(gpus)
        one, two = next(first), next(second)
        try:
            first.close()
        except RuntimeWarning:
            print("warned")
        print(two.held)
        one.release()
        nests(locks.rlock("again"))
        two.release()
        print([each.name for each in locks.claims()])
warnings.simplefilter("error")
asyncio.run(tasks())
threads()
"""


@pytest.mark.rare
@pytest.mark.parametrize("url", ["file"], indirect=True)
def test_blocks_of_compiled_code_end_no_other_block(url: str, tmp_path: Path) -> None:
    need("clock")  # a compiler of C
    pytest.importorskip("Cython", reason="NOT TESTED: there is no Cython here; pip install cython")
    (tmp_path / "blocks.py").write_text(BLOCKS)
    subprocess.run([sys.executable, *COMPILERS["Cython"], "blocks.py"], cwd=tmp_path, check=True, timeout=200)
    (tmp_path / "blocks.py").unlink()
    command = [sys.executable, "-c", USES, url]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["[False, True]", "True", "[]", "warned", "True", "[]"], done.stderr
