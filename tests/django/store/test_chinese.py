"""Sites in Chinese: the messages of the REST and admin parts."""

import ast
import gettext
import io
import re
from pathlib import Path
from typing import IO, Any

import pytest
from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import read_po
from django.utils.translation import override

import interlock.django
from interlock.core.errors import LockTimeout, StoreError
from interlock.django.middleware import answer_of

ROOM = Path(interlock.django.__file__).parent
MESSAGES = ROOM / "locale/zh_Hans/LC_MESSAGES/django"
TRANSLATING = ("_", "gettext", "gettext_lazy", "gettext_noop", "ngettext")
PYTHON = ["middleware.py", "apps.py", "toolbar.py", "admin.py", "guarded/admin.py"]
PYTHON += ["guarded/forms.py", "rest/views.py", "rest/schema.py", "middleware.py", "views.py"]
"""What people see is written in these, and in the templates."""
WORDS = re.compile(r"[A-Za-z]{2,} [A-Za-z]{2,}")


def texts(file: Path) -> tuple[set[str], set[str]]:
    """Return the texts of a module that are translated, and others of several words, but for those of errors."""
    tree = ast.parse(file.read_text())
    translated: set[str] = set()
    passed: set[ast.AST] = set()
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in TRANSLATING and isinstance(node, ast.Call):
            parts = [each for each in ast.walk(node) if isinstance(each, ast.Constant)]
            translated |= {str(each.value) for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)}
            passed.update(parts)
        elif isinstance(node, ast.Raise | ast.keyword) and getattr(node, "arg", None) in (None, "change_message"):
            passed.update(ast.walk(node))
        elif isinstance(called, ast.Name | ast.Attribute):
            name = called.id if isinstance(called, ast.Name) else called.attr
            passed.update(ast.walk(node) if name in ("warn", "CannotMerge") else ())
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed.add(node.value)
    plain = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in passed
    }
    return translated, {text for text in plain if WORDS.search(text) and text not in translated}


def texts_of_template(file: Path) -> tuple[set[str], list[str]]:
    """Return the texts of a template that are translated, and the others."""
    html = file.read_text()
    translated = set(re.findall(r'{% translate "(.*?)" %}', html))
    blocks = re.findall(r"{% blocktranslate %}(.*?){% endblocktranslate %}", html)
    translated |= {re.sub(r"{{ (\w+) }}", r"%(\1)s", each) for each in blocks}
    unseen = r"{% block bodyclass %}.*?{% endblock %}|&\w+;"
    marks = rf"{unseen}|{{% blocktranslate %}}.*?{{% endblocktranslate %}}|{{%.*?%}}|{{{{.*?}}}}|<[^>]*>"
    rest = re.sub(marks, " ", html, flags=re.DOTALL)
    return translated, re.findall(r"[A-Za-z]{2,}[^\n]*", rest)


def test_every_text_that_people_see_is_translated() -> None:
    assert {name: found for name in PYTHON if (found := texts(ROOM / name)[1])} == {"toolbar.py": {"timed out"}}
    assert [left for file in ROOM.rglob("*.html") for left in texts_of_template(file)[1]] == []


def test_every_message_has_its_chinese() -> None:
    wanted = {text for file in ROOM.rglob("*.py") for text in texts(file)[0]}
    wanted |= {text for file in ROOM.rglob("*.html") for text in texts_of_template(file)[0]}
    assert len(wanted) > 60
    with MESSAGES.with_suffix(".mo").open("rb") as file:
        chinese = gettext.GNUTranslations(file)
    missing = {text for text in wanted if text == chinese.gettext(text) == chinese.ngettext(text, text, 1)}
    assert missing == set()


def test_the_compiled_messages_are_those_of_the_text() -> None:
    with MESSAGES.with_suffix(".po").open("rb") as file:
        catalogue = read_po(file, locale="zh_Hans", abort_invalid=True)
    for message in catalogue:
        assert not message.fuzzy or not message.id
        for hole in re.findall(r"%\(\w+\)[sd]", str(message.id)):
            assert hole in str(message.string), message.id
    compiled = io.BytesIO()
    write_mo(compiled, catalogue)
    compiled.seek(0)
    with MESSAGES.with_suffix(".mo").open("rb") as file:
        # Not as bytes: the header has the version of Babel, which is another on another machine.
        assert _texts(compiled) == _texts(file)


def _texts(file: IO[bytes]) -> dict[str, Any]:
    return {str(message.id): message.string for message in read_mo(file) if message.id}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (LockTimeout("locked"), "其他人正在处理此对象。 请在 2 秒后重试。"),
        (StoreError("away"), "目前无法访问锁服务。 请在 2 秒后重试。"),
    ],
)
def test_an_answer_is_in_the_language_of_the_request(error: Any, said: str) -> None:
    with override("zh-hans"):
        answer = answer_of(error, 2)
    assert answer is not None
    assert answer.detail == said
