"""Arguments: an error for a value out of range contains the limit and the value."""

from array import array
from typing import Any

import pytest

from interlock.core.claims import (
    MAX_LABEL,
    MAX_NAME,
    MAX_TTL,
    checked_at_least,
    checked_at_most,
    checked_name,
    checked_text,
    checked_timeout,
    checked_ttl,
    shown_text,
    shown_value,
)
from interlock.core.errors import InvalidArgument, LockTimeout
from interlock.core.redaction import described, masked, why


def refused(check: Any, *given: Any) -> str:
    """Return the message of the error for an argument."""
    with pytest.raises(InvalidArgument) as error:
        check(*given)
    return str(error.value)


def test_a_name_has_from_one_to_a_thousand_characters() -> None:
    assert checked_name("a") == "a"
    assert checked_name("ä" * MAX_NAME) == "ä" * MAX_NAME
    assert MAX_NAME == 1000
    assert refused(checked_name, "") == ("The lock name must not be empty. Name the resource, e.g. 'book:1'.")
    assert refused(checked_name, "x" * 1001) == (
        "The lock name has 1001 characters; the limit is 1000. Hash the rest."
    )
    assert refused(checked_name, 5, "place") == "The place must be a str, not int. Convert it, e.g. str(...)."
    assert refused(checked_name, "a\0b") == "The lock name must not contain a NUL character. Replace it."
    assert refused(checked_name, "a\ud800") == (
        "The lock name must be encodable as UTF-8 (surrogates not allowed). Replace lone surrogates."
    )


def test_a_label_has_at_most_two_hundred_characters() -> None:
    assert checked_text("", "label", MAX_LABEL) == ""
    assert checked_text("x" * 200, "label", MAX_LABEL) == "x" * 200
    assert [shown_text("a" * 200), shown_text("a" * 201)] == ["a" * 200, "a" * 199 + "…"]
    assert "The label has 201 characters; the limit is 200." in refused(checked_text, "x" * 201, "label", MAX_LABEL)
    assert refused(checked_text, b"x", "label", MAX_LABEL).startswith("The label must be a str, not bytes.")


def test_a_lease_out_of_range_is_told_with_its_ends() -> None:
    assert refused(checked_ttl, 0.09).startswith("ttl must be between 0.1 and 3.1536e+08 seconds, not 0.09. ")
    assert refused(checked_ttl, MAX_TTL + 1).startswith(
        "ttl must be between 0.1 and 3.1536e+08 seconds, not 315360001.0."
    )
    assert refused(checked_ttl, None).endswith(
        ", not None. Leases always expire, so a crashed holder cannot block others forever. "
        "Omit ttl for the default of 30 s."
    )
    assert refused(checked_ttl, "1").endswith("Omit ttl for the default of 30 s.")
    assert "at_least must be between 0 and 3.1536e+08 seconds, not -1." in refused(checked_at_least, -1, None)
    assert "at_least=2 is longer than ttl=1.5," in refused(checked_at_least, 2, 1.5)
    assert "at_most must be between 0.001 and 3.1536e+08 seconds, not 0.0009." in refused(
        checked_at_most, 0.0009, 0.0
    )
    assert [checked_ttl(0.1), checked_ttl(315_360_000), checked_at_most(0.001, 0.001)] == [0.1, 315_360_000.0, 0.001]
    assert isinstance(checked_ttl(1), float)
    assert isinstance(checked_at_least(1, None), float)


def test_a_timeout_that_makes_no_sense_is_told_by_what_is_wrong() -> None:
    assert refused(checked_timeout, 5, None) == "blocking must be True or False, not 5. Did you mean timeout=5?"
    assert "blocking must be True or False, not -1" in refused(checked_timeout, -1, None)
    for wrong in (True, "1", float("nan")):
        assert refused(checked_timeout, True, wrong) == f"timeout must be a number of seconds or None, not {wrong!r}."
        assert (
            refused(checked_timeout, False, wrong) == f"timeout must be a number of seconds or None, not {wrong!r}."
        )
    for wrong in (-0.5, -1.5, -2):
        assert refused(checked_timeout, True, wrong).startswith(f"timeout must not be negative: {wrong}.")
    for given in (0, 0.0, 1, float("inf")):
        assert "blocking=False and timeout= contradict each other" in refused(checked_timeout, False, given)
    assert [checked_timeout(True, each) for each in (float("inf"), 10**400, MAX_TTL + 1)] == [None] * 3
    assert [checked_timeout(True, 0.5), checked_timeout(1, 0.0), checked_timeout(True, -1.0)] == [0.5, 0.0, None]
    assert [checked_timeout(False, -1), checked_timeout(0, None), checked_timeout(False, -1.0)] == [0.0, 0.0, 0.0]


def test_what_can_not_be_shown_is_said_by_its_type() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert shown_value(Shy()) == "a Shy whose repr fails"
    assert shown_value("x") == "'x'"


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("redis://me:secret@host/0", "redis://me:***@host/0"),
        ("redis://secret@host", "redis://***@host"),
        ("redis:me:secret@host", "redis:***@host"),
        ("me:secret@host", "me:***@host"),  # a scheme can't be distinguished from a user
        ("  redis://me:s@c@host", "  redis://me:***@host"),
        ("unix:///run/me@host/socket", "unix:///run/me@host/socket"),
        ("redis:///me:secret@host", "redis:///me:***@host"),
        ("FILE:///a:b@c", "FILE:///a:b@c"),
        ("redis://host/0?password=x&db=1;Auth_Token=y", "redis://host/0?password=***&db=1;Auth_Token=***"),
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_its_passwords(url: str, seen: str) -> None:
    assert masked(url) == seen


def test_a_librarys_reason_is_told_unless_the_url_has_a_password() -> None:
    error = ValueError("no such port: secret")
    assert why(error, "redis://host:x") == "no such port: secret"
    for password in ("secret", "!secret"):
        assert why(error, f"redis://me:{password}@host:x").startswith(
            "it cannot be parsed. In user and password, write %23"
        )


def test_objects_are_described_by_type_and_numbers_by_value() -> None:
    assert [described(each) for each in (None, True, 5, 1.5)] == ["None", "True", "5", "1.5"]
    assert [described(each) for each in ("secret", array("b"))] == ["<str>", "<array.array>"]
    assert described(LockTimeout("secret")) == "<interlock.core.errors.LockTimeout>"
