"""The usual forms of `interlock run` are read without click, and mean the same."""

from typing import Any

import click
import pytest
from hypothesis import example, given, settings, strategies

from interlock.cli.lazy_group import group
from interlock.cli.run import run
from interlock.cli.run_words import FLAGS, VALUES, read

VALUE_WORDS = ("0", "1", "2", "255", "256", "-1", "1_0", "٣", "5s", "0.5", "1d", "nan", "soon", "", "-", "--", "x y")
WORDS = strategies.sampled_from([*FLAGS, *VALUES, *VALUE_WORDS, "book", "true", "-nw", "-w5", "--one-of", "-o", "-h"])
JOINED = strategies.builds(
    "{}={}".format, strategies.sampled_from([*VALUES, "--keep"]), strategies.sampled_from(VALUE_WORDS)
)


def read_by_click(words: list[str]) -> dict[str, Any]:
    """Return the parameters of `run` as click reads them."""
    # With the settings of its group: a command keeps its first help option, of which later tests need the short name.
    parent = click.Context(group, **group.context_settings)
    return run.make_context("run", words.copy(), parent).params


@pytest.mark.parametrize(
    "words",
    [
        ["book", "true"],
        ["book", "--", "--", "-x"],
        ["-n", "book", "--", "true", "-n"],
        ["--wait=10m", "--timeout", "2h", "--ttl", "30", "--grace=0", "--at-least", "1s", "book", "true"],
        ["book", "--shared", "-v", "--keep", "true"],
        ["--permits", "3", "--units=2", "--max-waiters", "4", "-E", "0", "book", "true"],
        ["--store", "file:///x", "--namespace", "a", "--label", "", "book", "-c", "exit 3"],
    ],
)  # fmt: skip
def test_the_usual_forms_are_read_without_click(words: list[str]) -> None:
    assert read(words) == read_by_click(words)


@settings(max_examples=500, deadline=None)
@given(strategies.lists(WORDS | JOINED, max_size=7))
@example(["-c", "true", "--label", "--", "book", "--keep"])
def test_whatever_is_read_without_click_means_the_same_with_it(words: list[str]) -> None:
    found = read(words)
    if found is not None:
        assert found == read_by_click(words)
