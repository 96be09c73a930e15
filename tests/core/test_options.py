"""Options of URLs: their values, and the errors for unknown ones."""

from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import pytest

from interlock.core.errors import InvalidArgument
from interlock.core.options import flag_in, number_in, read_options, seconds_in, text_in

KNOWN = {
    "timeout": seconds_in,
    "max_connections": number_in,
    "db": partial(number_in, least=0, most=15),
    "create": flag_in,
    "table": text_in,
}


def read(query: str) -> dict[str, Any]:
    """Read the options of a URL."""
    return read_options(parse_qsl(query, keep_blank_values=True), KNOWN, "redis://")


def test_each_option_is_read_by_what_the_store_has_for_it() -> None:
    assert read("timeout=0.5&max_connections=7&db=0&create=false&table=a%20b") == {
        "timeout": 0.5,
        "max_connections": 7,
        "db": 0,
        "create": False,
        "table": "a b",
    }
    assert read("") == {}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "max_conections=3",
            r"^redis:// has no option 'max_conections'\. Did you mean max_connections\? "
            r"Options: create, db, max_connections, table, timeout\.$",
        ),
        ("colour=red", r"has no option 'colour'\. Options: create, db, max_connections, table, timeout\.$"),
        ("db=1&db=1", r"^redis://: give db exactly one value\.$"),
        ("table=", "give table exactly one value"),
        ("timeout=soon", r"^redis://: timeout must be a number of seconds above 0, not 'soon'\.$"),
        ("timeout=0", "above 0"),
        ("timeout=nan", "above 0"),
        ("timeout=inf", "above 0"),
        ("timeout=1e12", "timeout must be between 0.001 and 3.1536e[+]08 seconds, not 1000000000000"),
        ("timeout=0.0001", "between 0.001 and"),
        ("max_connections=0", "a whole number from 1 to 1000000, not '0'"),
        ("max_connections=1_0", "a whole number"),
        ("max_connections=%D9%A3", "a whole number"),
        ("db=16", "a whole number from 0 to 15, not '16'"),
        ("create=yes", "create must be true or false, not 'yes'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_does(query: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        read(query)


def test_a_store_without_options_says_so() -> None:
    with pytest.raises(InvalidArgument, match=r"^memory:// has no option 'x'\. It has no options\.$"):
        read_options([("x", "1")], {}, "memory://")
