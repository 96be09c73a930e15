"""Sites in Chinese: the messages of the REST and admin parts."""

import gettext
import io
import re
from pathlib import Path
from typing import Any

import pytest
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from django.utils.translation import override

import interlock.django
from interlock.core.errors import LockTimeout, StoreError
from interlock.django.answers import answer_of

ROOM = Path(interlock.django.__file__).parent
MESSAGES = ROOM / "locale/zh_Hans/LC_MESSAGES/django"
IN_PYTHON = re.compile(r'\b(?:_|gettext_lazy|ngettext)\(\s*"((?:[^"\\]|\\.)*)"')
IN_TEMPLATES = re.compile(r'{% translate "(.*?)" %}')


def test_every_message_has_its_chinese() -> None:
    wanted = {text for file in ROOM.rglob("*.py") for text in IN_PYTHON.findall(file.read_text())}
    wanted |= {text for file in ROOM.rglob("*.html") for text in IN_TEMPLATES.findall(file.read_text())}
    assert len(wanted) > 40
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
    assert compiled.getvalue() == MESSAGES.with_suffix(".mo").read_bytes()


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
