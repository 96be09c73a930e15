"""Run the blocks of one page in their order, as a reader would: `python -m tests.docs.run_page PAGE FOLDER`.

The prelude of a page is Python that runs first, in the same names.  Two of its names are known here: `ADDRESSES`
(text on the page -> its replacement in this test), and `check()`, called at the end.
"""

import ast
import asyncio
import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any

from tests.docs.pages import PYTHON, Block, blocks_of, prelude_of, run_by_command

FOLDER: Path
"""Preludes and pages have it among their names: where they run."""


def main(page: Path, folder: Path) -> None:
    """Run all of a page; any error ends it."""
    os.chdir(folder)
    os.environ["INTERLOCK_URL"] = (folder / "locks").as_uri()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    names: dict[str, Any] = {"__name__": "__page__", "FOLDER": folder}
    prelude = prelude_of(page)
    if prelude.exists():
        exec(compile(prelude.read_text(), str(prelude), "exec"), names)
    with asyncio.Runner() as runner:
        for block in blocks_of(page):
            if not block.reason and ">>>" not in block.text:  # doctest runs those
                _run(block, names, runner)
        if "check" in names:
            names["check"]()


def _run(block: Block, names: dict[str, Any], runner: asyncio.Runner) -> None:
    if block.language in PYTHON:
        _run_python(block, names, runner)
        return
    for command in block.commands:
        if run_by_command(command) is None:
            words = ["bash", "-euo", "pipefail", "-c", _in_this_test(command, names)]
            done = subprocess.run(words, check=False, timeout=60)
            if done.returncode != 0:
                raise SystemExit(f"{block.page}:{block.line}: status {done.returncode}: {command}")


def _run_python(block: Block, names: dict[str, Any], runner: asyncio.Runner) -> None:
    text = "\n" * (block.line - 1) + _in_this_test(block.text, names)  # tracebacks name the line of the page
    # In one piece, so that `await` may stand at the left, as in a notebook.
    code: CodeType = compile(text, str(block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(_awaited(code, names))
    else:
        exec(code, names)


async def _awaited(code: CodeType, names: dict[str, Any]) -> None:
    await eval(code, names)


def _in_this_test(text: str, names: dict[str, Any]) -> str:
    for there, here in names.get("ADDRESSES", {}).items():
        text = text.replace(there, here)
    return text


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
