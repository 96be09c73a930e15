"""A release moves the lines of `changelog.d` into CHANGELOG.md."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import interlock

ROOT = Path(__file__).parents[1]
NAMES = re.compile(r"(\d+|\+[\w-]+)\.(added|changed|deprecated|removed|fixed|security)(\.\d+)?\.md|template\.md")


def test_a_release_moves_the_lines_into_the_changelog(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "changelog.d", tmp_path / "changelog.d")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "changelog.d" / "7.fixed.md").write_text("A mend of `this`.\n")
    build = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "9.9.9", "--date", "2030-01-01"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after = (ROOT / "CHANGELOG.md").read_text(), (tmp_path / "CHANGELOG.md").read_text()
    head, _, older = before.partition("\n## ")
    assert after.startswith(f"{head}\n## 9.9.9 (2030-01-01)\n\n### ")
    assert "### Fixed\n- A mend of `this`. (#7)\n" in after
    assert after.endswith(f"\n## {older}")
    assert [path.name for path in (tmp_path / "changelog.d").iterdir()] == ["template.md"]


def test_each_file_is_a_line_of_one_kind() -> None:
    assert [path.name for path in (ROOT / "changelog.d").iterdir() if not NAMES.fullmatch(path.name)] == []


def test_the_first_section_of_the_changelog_is_this_version() -> None:
    first = re.search(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert first is not None
    assert first[1] == interlock.__version__
    if first[2] == "unreleased":  # else a release would make a second section of the same version
        assert [path.name for path in (ROOT / "changelog.d").iterdir()] == ["template.md"]
