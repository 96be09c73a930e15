"""Every block of Python and shell in the documentation is run, or gives a reason why not."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import (
    PAGES,
    ROOT,
    RUN_BY_COMMAND,
    RUN_ELSEWHERE,
    SHOWN,
    TRANSLATIONS,
    Block,
    blocks_of,
    name_of,
    prelude_of,
)
from tests.servers import MariaServer, PostgresServer, RedisServer, need

ELSEWHERE = {*RUN_ELSEWHERE, *TRANSLATIONS, *SHOWN}
WITH_BLOCKS = [page for page in PAGES if blocks_of(page) and name_of(page) not in ELSEWHERE]
SERVERS = {"valkey": RedisServer, "postgres": PostgresServer, "mariadb": MariaServer}


@pytest.fixture
def servers(page: Path) -> Iterator[dict[str, str]]:
    """The URLs of the servers that the first line of a page's prelude asks for: `# needs: valkey`."""
    prelude = prelude_of(page)
    first = prelude.read_text().partition("\n")[0] if prelude.exists() else ""
    wanted = first.partition("# needs:")[2].split()
    for each in wanted:
        need(each)
    started = {each: SERVERS[each]() for each in wanted}
    try:
        yield {f"INTERLOCK_DOCS_{each.upper()}": server.url for each, server in started.items()}
    finally:
        for server in started.values():
            server.close()


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_of)
def test_the_blocks_of_a_page_run(page: Path, servers: dict[str, str], tmp_path: Path) -> None:
    environment = {**os.environ, **servers, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", "tests.docs.run_page", str(page), str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, (
        f"{done.stdout}{done.stderr}\nWhat the page takes for granted belongs in {prelude_of(page).relative_to(ROOT)}"
    )


def test_what_is_not_run_says_why_and_is_rare() -> None:
    excused = [block for page in PAGES for block in blocks_of(page) if block.reason]
    assert all(len(block.reason) > 20 for block in excused)
    named = [name for block in excused for name in re.findall(r"`(tests/[^`]+)`", block.reason)]
    assert named
    assert all((ROOT / name).is_file() for name in named)
    assert len(excused) <= 7, json.dumps([f"{name_of(each.page)}:{each.line}" for each in excused])


def test_the_tests_that_run_pages_elsewhere_know_them() -> None:
    for page, test in RUN_ELSEWHERE.items():
        if (ROOT / page).exists():
            assert Path(page).name in (ROOT / test).read_text().replace('" / "', "/"), test
    assert all((ROOT / who).exists() for who in RUN_BY_COMMAND.values())


@pytest.mark.parametrize("page", TRANSLATIONS)
def test_a_translation_has_the_blocks_of_its_page(page: str) -> None:
    def code_of(block: Block) -> str:
        return re.sub(r"[ \t]*(?<!\S)# .*", "", block.text)  # comments are translated

    translated = [code_of(block) for block in blocks_of(ROOT / page)]
    assert translated == [code_of(block) for block in blocks_of(ROOT / TRANSLATIONS[page]) if not block.is_file]


@pytest.mark.parametrize("page", [ROOT / "README.zh-CN.md", *ROOT.glob("docs/zh/*.md")], ids=name_of)
def test_a_chinese_page_marks_its_links_to_english_pages(page: Path) -> None:
    unmarked = []
    for words, link, after in re.findall(r"(?<!!)\[([^\]]+)\]\(([^)#]+)[^)]*\)(.{0,4})", page.read_text()):
        leads_to_english = link.startswith("http") or (
            link.endswith(".md") and "zh" not in str((page.parent / link).resolve().relative_to(ROOT))
        )
        if leads_to_english and words != "English" and after != "（英文）":
            unmarked.append(f"[{words}]({link})")
    assert unmarked == []
