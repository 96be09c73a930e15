"""How the store's own connections are set up."""

import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections

from interlock.django.wrappers import PATIENT, make_wrapper


@pytest.fixture
def options_of() -> Iterator[Callable[..., dict[str, Any]]]:
    """Tell what the driver is told, where the settings have some options."""

    def options(**given: Any) -> dict[str, Any]:
        connections.settings["mine"] = {**connections.settings["default"], "OPTIONS": given}
        made: dict[str, Any] = make_wrapper("mine").settings_dict["OPTIONS"]
        assert connections.settings["mine"]["OPTIONS"] == given
        return made

    yield options
    connections.settings.pop("mine", None)


def test_an_option_that_nobody_can_copy_is_taken_as_it_is(options_of: Callable[..., dict[str, Any]]) -> None:
    context = ssl.create_default_context()
    assert options_of(context=context)["context"] is context


def test_nobody_waits_for_ever_for_a_silent_server_and_the_settings_have_the_last_word(
    options_of: Callable[..., dict[str, Any]],
) -> None:
    words = PATIENT.get(connections["default"].vendor, {})
    made = options_of()
    assert {word: made[word] for word in words} == words
    assert options_of(connect_timeout=77)["connect_timeout"] == 77


def test_names_and_labels_may_have_every_character(options_of: Callable[..., dict[str, Any]]) -> None:
    if connections["default"].vendor == "mysql":
        assert options_of()["charset"] == "utf8mb4"  # Django 4.2 says utf8
        assert options_of(charset="latin1")["charset"] == "latin1"
