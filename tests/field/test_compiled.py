"""Functions compiled by Cython and mypyc run with their locks, or are refused; they never run without."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.field.conftest import Run
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
