"""Sites in Chinese: the messages of the REST and admin parts."""

import gettext
import io
import re
from pathlib import Path
from typing import IO, Any

import pytest
from babel.messages.extract import DEFAULT_KEYWORDS, extract
from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import read_po
from django.utils.translation import override
from django.utils.translation.template import templatize

import interlock.django
from interlock.core.errors import LockTimeout, StoreError
from interlock.django.middleware import answer_of

ROOM = Path(interlock.django.__file__).parent
MESSAGES = ROOM / "locale/zh_Hans/LC_MESSAGES/django"
LAZY: dict[str, None] = dict.fromkeys(["gettext_lazy", "gettext_noop"])


def texts() -> set[str]:
    """Return the texts in the modules and templates that are translated."""
    found = set()
    for file in [*ROOM.rglob("*.py"), *ROOM.rglob("*.html")]:
        text = file.read_text()
        code = io.BytesIO((templatize(text) if file.suffix == ".html" else text).encode())
        for _, message, _, _ in extract("python", code, {**DEFAULT_KEYWORDS, **LAZY}):
            found.add(message if isinstance(message, str) else message[0])
    return found


def test_every_message_has_its_chinese() -> None:
    wanted = texts()
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
    assert answer.detail == said
