"""The code blocks of the documentation, and the tests that run them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("bench/*.md"),
        *ROOT.glob("tests/*.md"),
        *ROOT.glob("examples/**/*.md"),
    ]
)
PYTHON = ("python", "py", "python3", "pycon")
SHELL = ("console", "sh", "bash", "shell")
EXCUSE = re.compile(r"\*(?:Not run by a test: |(?=`tests/[^`]+` runs this file))([^*]+)\*")
PRELUDES = Path(__file__).parent / "preludes"

# Pages whose blocks a test elsewhere runs, in its own way.
RUN_ELSEWHERE = {
    "docs/adr/0033-original-lock-on-redis.md": "tests/redis/keylock/test_pages.py",
    "docs/howto/testing.md": "tests/fakes/test_howto.py",
    "docs/howto/optimistic.md": "tests/optimistic/test_howto.py",
    "docs/howto/third-party-store.md": "tests/contract/test_third_party.py",
    "docs/stores/redis-keylock.md": "tests/redis/keylock/test_pages.py",
}

# Pages whose blocks are those of another page, or of files that are run; the others run them.
SHOWN = (
    "docs/zh/choosing.md", "docs/zh/django.md", "docs/zh/django-guarded.md", "docs/zh/django-rest.md",  # shortened
)  # fmt: skip

# Translations: the same blocks, but for the comments, as the page that they translate, which alone shows files.
TRANSLATIONS = {
    "README.zh-CN.md": "README.md",
    "docs/zh/cron.md": "docs/recipes/cron.md",
    "docs/zh/election.md": "docs/howto/election.md",
    "docs/zh/once.md": "docs/howto/once.md",
    "docs/zh/first-lock.md": "docs/tutorial/first-lock.md",
}

# Commands that take minutes, and the tests that run them instead.
RUN_BY_COMMAND = {
    "./dev": ".github/workflows",
    ". .venv/bin/activate": "dev",
    "pytest -n 4": "dev",
    "ruff check .": "dev",
    "pip install": "examples/walks",
    "interlock lead": "tests/cli",
    "interlock serve": "tests/cli",
    "examples/library/run": "tests/examples/test_run.py",
    "python examples/library/race.py": "tests/examples/test_race.py",
    "python -m model_checker": "tests/model_checker",
    "python -m bench.pictures": "tests/test_bench.py",
}


@dataclass(frozen=True)
class Block:
    """One fenced block: its first line, language and text."""

    page: Path
    line: int  # of its first line of code, from 1
    language: str
    text: str
    reason: str  # why no test runs it; empty if one does
    is_file: bool  # the text is that of a file, which the page names

    @property
    def commands(self) -> list[str]:
        """The commands after the prompts of a console, with continued lines joined; a script as a whole."""
        if self.language != "console":
            return [self.text]
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line[2:] for line in lines if line.startswith(("$ ", "# "))]


def blocks_of(page: Path) -> list[Block]:
    """Return the Python and shell blocks of a page, in order."""
    text = page.read_text()
    found = []
    for match in re.finditer(r"^(`{3,})([^\n`]*)\n(.*?)^\1[ \t]*$\n?", text, re.M | re.S):
        language = match[2].strip()
        if language not in (*PYTHON, *SHELL):
            continue
        after = text[match.end() :].lstrip()
        excuse = EXCUSE.match(after)
        reason = excuse[1] if excuse else ""
        line = text[: match.start(3)].count("\n") + 1
        is_file = text[: match.start()].rstrip().rpartition("\n")[2].startswith("<!-- shows ")
        found.append(Block(page, line, language, match[3], reason, is_file))
    return found


def name_of(page: Path) -> str:
    """Return the path of a page in the repository."""
    return str(page.relative_to(ROOT))


def prelude_of(page: Path) -> Path:
    """Return the path of the file that prepares what the examples of a page use; it may not exist."""
    return PRELUDES / (name_of(page).removesuffix(".md").replace("/", "_").replace("-", "_").lower() + ".py")


def run_by_command(command: str) -> str | None:
    """Return what runs a command that takes minutes; None for all others."""
    return next((who for prefix, who in RUN_BY_COMMAND.items() if command.startswith(prefix)), None)
