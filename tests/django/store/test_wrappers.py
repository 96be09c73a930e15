"""How the store's own connections are set up."""

import socket
import ssl
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connections

from interlock.django.wrappers import PATIENT, hang_up, make_wrapper


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


@pytest.mark.parametrize("closed_meanwhile", [False, True])
def test_a_connection_that_its_own_thread_closes_is_not_hung_up_on(closed_meanwhile: bool) -> None:
    """The number of its descriptor may be somebody else's by then."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        numbers = iter([ours.fileno(), -1 if closed_meanwhile else ours.fileno()])
        hang_up(SimpleNamespace(connection=SimpleNamespace(fileno=lambda: next(numbers))))
        theirs.setblocking(False)
        if closed_meanwhile:
            with pytest.raises(BlockingIOError):
                theirs.recv(1)
        else:
            assert theirs.recv(1) == b""
