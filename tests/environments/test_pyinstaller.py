"""A program frozen by PyInstaller finds the stores, which are imported by name."""

import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock.pyinstaller import hook_dirs
from tests.environments.conftest import EVERYWHERE

PLAY = """
import asyncio, sys
import interlock
async def tasks(url):
    async with interlock.aconnect(url) as locks, locks.lock("b"):
        print("in")
for url in sys.argv[1:]:
    with interlock.connect(url).lock("a"):
        print("in")
    asyncio.run(tasks(url))
"""


@pytest.mark.rare
def test_a_frozen_program_locks_on_every_store(tmp_path: Path) -> None:
    pytest.importorskip("PyInstaller")
    file = tmp_path / "app.py"
    file.write_text(PLAY)
    source = Path(interlock.__file__).parents[1]
    words = ["--noconfirm", "--specpath", "spec", "--additional-hooks-dir", *hook_dirs(), "--paths", str(source)]
    subprocess.run([sys.executable, "-m", "PyInstaller", *words, str(file)], cwd=tmp_path, check=True, timeout=250)
    urls = [row.place(tmp_path).url or "memory://" for row in EVERYWHERE]
    done = subprocess.run([tmp_path / "dist" / "app" / "app", *urls], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["in"] * 2 * len(urls), done.stderr
