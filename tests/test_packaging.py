"""The published files: a complete source distribution, and a wheel for all platforms."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DATE = "1700000000"  # seconds since the epoch, the time of all files in a distribution


def built(kind: str, source: Path, folder: Path, **environment: str) -> Path:
    """Build a distribution with the tools that are installed here; return its path."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(folder), str(source)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env={**os.environ, "SOURCE_DATE_EPOCH": DATE, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sources")
    tree = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(tree, fcntl.LOCK_EX)  # a build writes into the tree, and other workers build it too
        made = built("sdist", ROOT, tmp_path_factory.mktemp("sdist"))
    finally:
        os.close(tree)
    with tarfile.open(made) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (unpacked,) = folder.iterdir()
    return unpacked


@pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None, reason="only git knows what belongs to the project"
)
def test_the_source_distribution_has_every_file_of_the_project(sources: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = {name for name in listed.split("\0") if name and (ROOT / name).exists()}
    assert len(tracked) > 500
    assert {name for name in tracked if not (sources / name).exists()} == set()


def test_a_wheel_for_all_platforms_is_made_of_it(sources: Path, tmp_path: Path) -> None:
    wheel = built("wheel", sources, tmp_path, INTERLOCK_PURE="1")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [archive.read(name).decode() for name in names if name.endswith("/METADATA")]
    assert "](https://github.com/interlock-py/interlock/blob/main/docs/tutorial/first-lock.md)" in metadata
    assert re.findall(r"\]\((?!https?:|#)[^)]*\)", metadata) == []  # the package index knows no files beside the page
    assert "interlock/django/locale/zh_Hans/LC_MESSAGES/django.mo" in names
    assert not [name for name in names if name.endswith((".so", ".pyd"))]
    folder = sources / "src"
    needed = [path for end in ("*.lua", "*.sql", "_sync/*.py") for path in folder.glob(f"interlock/**/{end}")]
    assert len(needed) > 20
    assert {"interlock/py.typed", *(path.relative_to(folder).as_posix() for path in needed)} <= set(names)
    assert any(name.endswith(".data/data/share/man/man1/interlock.1") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"interlock"}
    program = (
        "import interlock; interlock.connect('memory://').lock('a').acquire().release(); print(interlock.__file__)"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(wheel)!r}); {program}"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ran.stdout.startswith(str(wheel))


@pytest.mark.rare
def test_the_same_sources_make_the_same_files(sources: Path, tmp_path: Path) -> None:
    """Also in another folder; and the compiled part uses only the stable ABI from Python 3.11 on."""
    copy = shutil.copytree(sources, tmp_path / "elsewhere" / "copy")
    made = [built("sdist", tree, tmp_path / f"sdist-{tree.name}").read_bytes() for tree in (sources, copy)]
    assert made[0] == made[1]
    first, second = (built("wheel", tree, tmp_path / f"wheel-{tree.name}") for tree in (sources, copy))
    assert "-cp311-abi3-" in first.name
    assert first.read_bytes() == second.read_bytes()
    command = [sys.executable, "-m", "abi3audit", "--strict", str(first)]
    audit = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert audit.returncode == 0, audit.stdout + audit.stderr
