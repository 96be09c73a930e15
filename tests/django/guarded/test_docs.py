"""The examples of the how-to pages are valid Python, and the names that they import exist."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

HOWTO = Path(__file__).parents[3] / "docs" / "howto"
PAGES = ["django-guarded.md", "django-rest.md", "django-choosing.md"]


@pytest.mark.parametrize("page", PAGES)
def test_examples_import_what_is_there(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (HOWTO / page).read_text(), re.DOTALL)
    assert blocks
    imported = 0
    for block in blocks:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                module = import_module(node.module or "")
                assert all(hasattr(module, alias.name) for alias in node.names)
                imported += 1
    assert imported
