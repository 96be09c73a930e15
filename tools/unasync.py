"""Write each `_sync/` folder from the `_async/` beside it: plain tokens, nothing else.

    python tools/unasync.py [--check]

With `--check` it writes nothing, and fails if a file is not up to date.  A statement under the comment `# async only`
is left out.  What is right for tasks and wrong for threads is refused: an `await` under `with mutex`, and a coroutine
that is an argument, since its twin would run before the call.
"""

import ast
import re
import sys
from pathlib import Path

HEADER = "# Generated from {} by tools/unasync.py; change that one.\n"
RULES = [  # in this order
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b_aio\b", "_threads"),
    (r"\b_async\b", "_sync"),
    (r"\b__a(enter|exit|next|iter)__\b", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\bhandle_async_request\b", "handle_request"),
    (r"\ba(close|connect|iter_lines|queue|read|transact)\b", r"\1"),
]
ONLY = "# async only"


def threads_of(text: str) -> str:
    """Return the module for threads."""
    kept: list[str] = []
    skipped: tuple[int, bool] | None = None  # the indentation of what is left out, and whether it has begun
    for line in text.splitlines(keepends=True):
        indent = len(line) - len(line.lstrip())
        ends = not line.lstrip().startswith((")", "]", "}"))  # else it belongs to the same statement
        if skipped and ends and line.strip() and (indent < skipped[0] or (indent == skipped[0] and skipped[1])):
            skipped = None
        if line.strip() == ONLY:
            skipped = (indent, False)
        elif skipped:
            skipped = (skipped[0], True)
        else:
            kept.append(line)
    text = "".join(kept)
    for pattern, by in RULES:
        text = re.sub(pattern, by, text)
    return text


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
    for each in wrong:
        print(each)
    for file in stale:
        print("stale:" if check else "written:", file)
    return 1 if wrong or (check and stale) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
