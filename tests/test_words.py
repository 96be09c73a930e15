"""The old words of the project are gone: docs/reference/glossary.md has one word for each thing."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
KINDS = {".py", ".pyi", ".c", ".lua", ".sql", ".md", ".html", ".toml", ".yml", ".sh"}
FOLDERS = ("src", "proof", "tests", "bench", "examples", "docs", ".ci", ".github")

OLD = {"bell", "ear", "heir", "roster", "manner", "patience", "era", "living", "presence", "beacon", "dialer"}
"""Gone everywhere, also as a part of an identifier, and in the plural."""
OLD_NAMES = {"told", "turn", "terms", "news", "poke", "trouble"}
"""Gone as names: in a sentence each is an English word."""
OLD_PHRASES = re.compile(r"\b(quick ways?|the seeds)\b", re.IGNORECASE)

HISTORY = ("docs/explanation", "docs/adr", "CHANGELOG.md", "changelog.d", "tests/test_words.py")
NAMES_OF_ENGLISH = {  # where a name is the English word after all
    "tests": {"told", "news", "poke"},  # what somebody was told; in programs that tests start
    "bench": {"turn"},  # one after the other
    "tests/test_bench.py": {"turn"},
    "src/interlock/testing/torture": {"told"},  # a field of the histories
}
IMPORT_PATHS = {"ThreadBell", "TaskBell", "threadbell", "taskbell"}
WIRE = re.compile(r"\bbell=")  # a field of the line files


def glossary(page: str) -> list[str]:
    """Return the words that a page defines, one or more a row."""
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / page).read_text(), re.MULTILINE)
    return [word for row in rows if row not in ("word", "English") for word in row.split(", ")]


def parts(word: str) -> list[str]:
    """Return the words that an identifier is made of, in the singular too: `_make_heirs` has `heirs` and `heir`."""
    found = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", word)
    return [form for part in found for form in (part.lower(), part.lower().removesuffix("s"))]


def files() -> Iterator[tuple[str, str]]:
    """Yield the paths and texts that are looked at."""
    found = [each for folder in FOLDERS for each in sorted((ROOT / folder).rglob("*"))]
    for file in [*found, *sorted(ROOT.glob("*.md")), ROOT / "dev", ROOT / ".ci/run"]:
        name = str(file.relative_to(ROOT))
        if (file.suffix in KINDS or file.name in ("dev", "run")) and file.is_file() and not name.startswith(HISTORY):
            yield name, file.read_text()


def old_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line numbers and words of a text that are to be mended."""
    for number, line in enumerate(text.splitlines(), 1):
        line = WIRE.sub("", line)
        words = [word for word in re.findall(r"[A-Za-z_]+", line) if word not in IMPORT_PATHS]
        yield from ((number, word) for word in words if OLD & {*parts(word)})
        yield from ((number, match[0]) for match in OLD_PHRASES.finditer(line))


def old_names(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line numbers and identifiers of a Python module that are to be mended."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and not token.string.startswith("test_"):
            yield from ((token.start[0], part) for part in {*parts(token.string)} & OLD_NAMES)


def test_old_words_are_gone() -> None:
    looked = list(files())
    assert len(looked) > 800
    assert [f"{name}:{number}: {word}" for name, text in looked for number, word in old_words(text)] == []


def test_old_names_are_gone() -> None:
    found = []
    for name, text in files():
        if name.endswith(".py"):
            fine = {word for place, words in NAMES_OF_ENGLISH.items() if name.startswith(place) for word in words}
            found += [f"{name}:{number}: {word}" for number, word in old_names(text) if word not in fine]
    assert found == []


def test_identifiers_are_read_word_by_word() -> None:
    assert list(old_words("a = _make_heirs(TheBells, ears)")) == [(1, "_make_heirs"), (1, "TheBells"), (1, "ears")]
    assert list(old_words("bell=000001 ThreadBell early heard generation opera")) == []
    names = "self._trouble = told_but(turns, PokeMe)"
    assert [word for _, word in old_names(names)] == ["trouble", "told", "turn", "poke"]


def test_the_glossary_tells_each_word_once_in_both_languages() -> None:
    english, chinese = glossary("docs/reference/glossary.md"), glossary("docs/zh/glossary.md")
    assert len(english) > 50
    assert [word for page in (english, chinese) for word in page if page.count(word) > 1] == []
    assert set(english) - set(chinese) == set()
