"""The check of the subjects of commits finds what CONTRIBUTING forbids."""

import pytest

from tools import subjects


@pytest.mark.parametrize(
    "subject",
    [
        "redis: drop the caller name from the enter() cache key",
        "redis, files: say once what both do",
        "storekit: embed the version",
        "docs: process the pages in order",
    ],
)
def test_a_good_subject_is_accepted(subject: str) -> None:
    assert subjects.wrong(subject) == ""


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("x", "form"),
        ("Read again: assertions are back", "imperative"),
        ("docs: the page is shorter", "imperative"),
        ("docs: shortened the page", "imperative"),
        ("docs: shortens the page", "imperative"),
        ("docs: shortening the page", "imperative"),
        ("docs: shorten the page.", "form"),
        ("docs: " + "shorten " * 9 + "the page", "72"),
    ],
)
def test_a_bad_subject_is_refused(subject: str, why: str) -> None:
    assert why in subjects.wrong(subject)
