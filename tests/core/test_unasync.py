"""The tool that writes the modules for threads."""

import ast
from pathlib import Path

import pytest

import interlock
from tools.unasync import refused, threads_of

PACKAGE = Path(interlock.__file__).parent


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("async def f(): return await g()\n", "def f(): return g()\n"),
        ("async with a as b, c: await b\n", "with a as b, c: b\n"),
        ("x = await f(await g())\n", "x = f(g())\n"),
        ("from a._async.b import AsyncThing as AsyncOther\n", "from a._sync.b import Thing as Other\n"),
        ("x: 'AsyncThing' = aconnect('await f')\n", "x: 'Thing' = connect('await f')\n"),
        ('x = f"{await y!r} task {AsyncThing}"\n', 'x = f"{y!r} task {Thing}"\n'),
        ("async_name = awaited  # a task\n", "async_name = awaited  # a thread\n"),
        (
            'def f():\n    """Of the task."""\n    return "task"\n',
            'def f():\n    """Of the thread."""\n    return "task"\n',
        ),
        ('"""Of a thread or\ntask."""\n', '"""Of a thread."""\n'),
        ('"""Of threads and tasks."""\n', '"""Of threads and tasks."""\n'),
    ],
)
def test_names_and_prose_are_translated(written: str, expected: str) -> None:
    assert threads_of(written) == expected


@pytest.mark.parametrize(
    "statement",
    [
        "x = 1\n",
        "x = f(\n    1,\n)\n",
        "@one\n@two\nasync def f():\n    pass\n\n    await g\n",
        "if x:\n    y = 1\nelse:\n    y = 2\n",
    ],
)
def test_a_statement_that_only_tasks_need_is_left_out(statement: str) -> None:
    written = f"a = 1\n# async only\n{statement}b = 2\n"
    assert threads_of(written) == "a = 1\nb = 2\n"
    inside = "".join("    " + line for line in written.splitlines(keepends=True))
    assert ast.dump(ast.parse(threads_of("def f():\n" + inside))) == ast.dump(
        ast.parse("def f():\n    a = 1\n    b = 2\n")
    )


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("async def f(self):\n    with self.mutex:\n        await g()\n", "an await under a mutex"),
        ("async def g(): pass\nasync def f(): spawn(g())\n", "a coroutine as an argument"),
    ],
)
def test_what_is_wrong_for_threads_is_refused(written: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(written)
    assert [why in each for each in refused(tmp_path / "module.py")] == [True]


def test_docstrings_for_threads_do_not_mention_tasks() -> None:
    found = [
        f"{path}: {line}"
        for path in PACKAGE.rglob("_sync/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for line in (ast.get_docstring(node) or "").splitlines()
        if ("task" in line or "asyncio" in line) and "thread" not in line
    ]
    assert found == []
