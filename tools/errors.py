"""Write the table of messages into the page of errors: `python tools/errors.py [--check]`.

A row is a message in the sources that ends with a cure, and that a test raises and matches.  Messages about the form
of an argument (`core`), and about arguments of stores, of integrations and of transactions are left out: they are
read where the argument is written.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "errors.md"
BEGIN, END = "<!-- made by tools/errors.py -->\n", "<!-- the end of the table -->\n"
SOURCE = ROOT / "src" / "interlock"
TESTS = (ROOT / "tests", SOURCE / "testing")
COMMON = ("api", "client", "patterns")  # the packages whose InvalidArgument is in the table
PUBLIC = (
    "LockTimeout", "Busy", "LockLost", "NotHeld", "NotKept", "PayloadMismatch", "InvalidArgument", "Unsupported",
    "StoreError",
)  # fmt: skip
STORE_ERRORS = {
    "Refused", "Denied", "Unreachable", "UnknownOutcome", "NoAnswer", "TransientRefusal", "ConnectionEnded",
}  # fmt: skip
CURES = re.compile(
    r"(?<=[.!?]) (?=(?:Acquire|Add|Allow|Await|Call|Change|Check|Choose|Connect|Continue|Convert|Create|Decorate|"
    r"Double|End|Exclude|Find|Give|Hash|Install|Let|Lock|Mount|Name|Omit|Pass|Put|Raise|Release|Remove|Replace|Restart|Retry|"
    r"Run|Save|Send|Set|Stop|To|Use|Wait|Write)\b)"
)
SHORTEST = 12  # characters of a cause by which a message can be found
MOST = 100  # rows


def template(node: ast.expr) -> str:
    """Return the text of a message, with an ellipsis for each value."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)  # type: ignore[misc]
    return "…"


def messages() -> Iterator[tuple[str, str, str]]:
    """Yield the class, the cause and the cure of each message in the sources."""
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0]
        if "_sync" in path.parts or package == "testing":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                continue
            kind = "StoreError" if node.func.id in STORE_ERRORS else node.func.id
            cause, *cure = CURES.split(template(node.args[0]), maxsplit=1)
            wanted = kind in PUBLIC and package != "optimistic" and (kind != "InvalidArgument" or package in COMMON)
            if wanted and cure and len(cause) >= SHORTEST:
                yield kind, cause, cure[0]


def patterns() -> list[str]:
    """Return the patterns of messages in the tests."""
    return [
        word.value.value
        for folder in TESTS
        for path in sorted(folder.rglob("*.py"))
        for word in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(word, ast.keyword) and word.arg == "match"
        if isinstance(word.value, ast.Constant) and isinstance(word.value.value, str)
    ]


def table() -> str:
    """Return the table of the messages that tests raise."""
    tested = patterns()
    rows = sorted(
        {each for each in messages() if any(re.search(pattern, f"{each[1]} {each[2]}") for pattern in tested)},
        key=lambda row: (PUBLIC.index(row[0]), row[1].lstrip("…' "), row),
    )
    if len(rows) > MOST:
        raise SystemExit(
            f"The table has {len(rows)} rows, more than anyone reads. Leave some out in tools/errors.py."
        )
    lines = [f"| `{kind}` | {_cell(cause)} | {_cell(cure)} |" for kind, cause, cure in rows]
    return "\n".join(["| exception | message and cause | cure |", "|---|---|---|", *lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_")


def main(check: bool) -> int:
    """Bring the page up to date, or tell that it is not; return the status."""
    page = PAGE.read_text(encoding="utf-8")
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    now = head + begin + "\n" + table() + "\n" + end + tail
    if check and now != page:
        print(f"{PAGE.relative_to(ROOT)} has an older table of messages: run python tools/errors.py", file=sys.stderr)
        return 1
    PAGE.write_text(now, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
