"""Write each `_sync/` folder from the `_async/` beside it, by Python's own tokens.

    python tools/unasync.py [--check]

Names are translated everywhere, words in docstrings and comments only.  Line breaks and indentation stay.  A
statement under the comment `# async only` is left out.  With `--check` it writes nothing, and fails if a file is not
up to date.  It refuses what is right for tasks and wrong for threads (an `await` under `with mutex`; a coroutine as
an argument, since its twin would run before the call), and a rule that nothing needs.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

HEADER = "# Generated from {} by tools/unasync.py; change that one.\n"
ONLY = "# async only"
NAMES = {
    "_aio": "_threads",
    "_async": "_sync",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "handle_async_request": "handle_request",
    "aclose": "close",
    "aconnect": "connect",
    "aiter_lines": "iter_lines",
    "aqueue": "queue",
    "aread": "read",
    "atransact": "transact",
}
WORDS = {
    "threads and tasks": None,
    "written for tasks, generated for threads": None,
    "a pool for threads, one connection for tasks": None,
    "async ones for tasks, sync ones for threads": None,
    "threads: for each reply; tasks: for all": None,
    "the threads of a process or the tasks of an event loop": "the threads of a process",
    "thread or task": "thread",
    "process or event loop": "process",
    "process or loop": "process",
    "asyncio tasks": "threads",
    "tasks": "threads",
    "task": "thread",
}
"""Phrases, a longer one before its parts; a line may end within one.  None: it is right for threads, too."""

ASYNC = re.compile(r"\bAsync(?=[A-Z])")
NAME = re.compile(rf"\b({'|'.join(NAMES)})\b")
KEYWORD = re.compile(r"\basync (?=def|with|for)|\bawait ")
FSTRING = re.compile("[rR]?[fF]")
WORD = re.compile(rf"\b({'|'.join(WORDS)})\b".replace(" ", r"\s+"))
used: Counter[str] = Counter()
"""How often each rule was needed."""


def in_code(text: str) -> str:
    """Translate the names in a text."""
    used.update(NAME.findall(text))
    return NAME.sub(lambda found: NAMES[found[1]], ASYNC.sub("", text))


def in_prose(text: str) -> str:
    """Translate a docstring or a comment."""

    def word(found: re.Match[str]) -> str:
        phrase = " ".join(found[1].split())
        used[phrase] += 1
        return WORDS[phrase] or found[0]

    return WORD.sub(word, KEYWORD.sub("", in_code(text)))


def threads_of(text: str) -> str:
    """Return the module for threads."""
    tree, lines = ast.parse(text), text.splitlines(keepends=True)
    left_out, prose = set(_left_out(tree, lines)), set(_docstrings(tree))
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for each, after in reversed(list(pairwise(tokens))):
        (row, column), (last, end) = each.start, each.end
        if each.type == tokenize.NAME and each.string in ("async", "await"):
            new, end = "", after.start[1]
        elif each.type == tokenize.COMMENT or each.start in prose:
            new = in_prose(each.string)
        elif each.type in (tokenize.NAME, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)):
            new = in_code(each.string)
            if FSTRING.match(new):  # before Python 3.12 an f-string is one token
                new = KEYWORD.sub("", new)
        else:
            continue
        if new != each.string:
            text = lines[row - 1][:column] + new + lines[last - 1][end:]
            lines[row - 1 : last] = [text, *[""] * (last - row)]
    return "".join(line for number, line in enumerate(lines, 1) if number not in left_out)


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Yield where each docstring begins, also those of attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.col_offset


def _left_out(tree: ast.Module, lines: list[str]) -> Iterator[int]:
    """Yield the numbers of the lines of statements that only tasks need, with the comment above and the empty lines
    below."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        decorators = getattr(node, "decorator_list", [])
        first = last = min([node.lineno, *(each.lineno for each in decorators)])
        while first > 1 and lines[first - 2].lstrip().startswith("#") and lines[first - 1].strip() != ONLY:
            first -= 1
        if lines[first - 1].strip() == ONLY:
            last = node.end_lineno or last
            while last < len(lines) and not lines[last].strip():
                last += 1
            yield from range(first, last + 1)


def refused(path: Path) -> list[str]:
    """Return what is wrong for threads in a module."""
    tree = ast.parse(path.read_text())
    coroutines = {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    found: list[tuple[ast.expr, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any("mutex" in ast.unparse(each) for each in node.items):
            found += [(each, "an await under a mutex") for each in ast.walk(node) if isinstance(each, ast.Await)]
        if isinstance(node, ast.Call):
            for each in (*node.args, *(keyword.value for keyword in node.keywords)):
                if isinstance(each, ast.Call) and ast.unparse(each.func).removeprefix("self.") in coroutines:
                    found.append((each, "a coroutine as an argument: give the function and its arguments"))
    return [f"{path}:{node.lineno}: {why}" for node, why in found]


def main(*options: str) -> int:
    """Write or check all; return the exit status."""
    check, wrong, stale = "--check" in options, [], []
    for source in sorted(Path("src").rglob("_async")):
        target = source.with_name("_sync")
        target.mkdir(exist_ok=True)
        wanted = {path.name: path for path in source.glob("*.py")}
        stale += [path for path in target.glob("*.py") if path.name not in wanted]
        for name, path in wanted.items():
            wrong += refused(path)
            text = HEADER.format(f"_async/{name}") + threads_of(path.read_text())
            compile(text, str(path), "exec")
            if not (target / name).exists() or (target / name).read_text() != text:
                stale.append(target / name)
                if not check:
                    (target / name).write_text(text)
    wrong += [f"tools/unasync.py: nothing needs the rule for {each!r}" for each in (*NAMES, *WORDS) if not used[each]]
    for each in wrong:
        print(each)
    for file in stale:
        print("stale:" if check else "written:", file)
    return 1 if wrong or (check and stale) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
