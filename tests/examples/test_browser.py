"""Locks and guards in the admin of examples/library, in real browsers."""

import re
import socket
from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.servers import need
from tests.support.browser import Library, Person, two_browsers

Browsers = tuple[webdriver.Remote, webdriver.Remote]


@pytest.fixture(scope="module")
def library() -> Iterator[Library]:
    """The site."""
    need("browser")
    site = Library()
    yield site
    site.close()


@pytest.fixture(scope="module")
def browsers(library: Library) -> Iterator[Browsers]:
    """Two browsers, one for each desk."""
    with two_browsers(library) as both:
        yield both


@pytest.fixture
def anna(library: Library, browsers: Browsers) -> Person:
    """A superuser on the first desk."""
    return library.person(browsers[0], "anna")


@pytest.fixture
def ben(library: Library, browsers: Browsers) -> Person:
    """A superuser on the second desk."""
    return library.person(browsers[1], "ben")


def claims_of(person: Person, name: str) -> list[dict[str, str]]:
    """Return the claims of a name on the page that a person looks at."""
    return [row for row in person.claims() if row["name"] == name]


def line_of(person: Person, name: str) -> list[tuple[str, str]]:
    """Return the labels and states of those claims."""
    return [(row["label"], row["state"]) for row in claims_of(person, name)]


def await_line(person: Person, name: str, *line: tuple[str, str]) -> None:
    """Wait until a person sees those labels and states, and no others of that name."""
    person.until(lambda: line_of(person, name) == [*line])


def test_a_second_editor_is_told_who_is_editing_until_that_one_has_saved(anna: Person, ben: Person) -> None:
    anna.open_form(4)
    assert anna.texts(".messagelist .warning") == []

    ben.open_form(4)
    [told] = ben.texts(".messagelist .warning")
    assert re.match(r"Opened by anna \d+ minutes? ago, who may be editing it\.", told)
    ben.picture("who-edits")

    anna.send()
    ben.open_form(4)
    assert ben.texts(".messagelist .warning") == []


@pytest.mark.parametrize(("book", "answer"), [(5, "theirs"), (6, "mine")])
def test_who_saves_a_field_second_chooses_between_both_values_and_loses_nothing(
    anna: Person, ben: Person, book: int, answer: str
) -> None:
    anna.open_form(book)
    ben.open_form(book)
    title = anna.value("title")
    theirs, mine = f"{title}: A Novel", f"{title}, Vol. I"
    anna.put("title", theirs)
    anna.put("year", "1815")
    anna.send()
    ben.put("title", mine)
    ben.put("status", "lent")
    ben.put("copies-0-note", "The cover is torn.")
    ben.send()

    [asked] = ben.texts(".field-title .errorlist")
    assert f"from “{title}” to “{theirs}” since you opened the page." in asked
    assert f"keep mine: “{mine}”" in asked
    assert f"take theirs: “{theirs}”" in asked
    assert ben.value("title") == mine
    assert (ben.value("status"), ben.value("copies-0-note")) == ("lent", "The cover is torn.")
    ben.one(f"[type=radio][name=interlock_keep_title][value={answer}]").click()
    ben.picture("two-editors")
    ben.send()

    assert "was changed successfully" in ben.texts(".messagelist .success")[0]
    anna.open_form(book)
    assert anna.value("title") == (mine if answer == "mine" else theirs)
    assert anna.value("year") == "1815"
    assert (anna.value("status"), anna.value("copies-0-note")) == ("lent", "The cover is torn.")


def test_the_claims_show_who_holds_and_who_has_come_since_by_themselves(library: Library, anna: Person) -> None:
    name = "catalogue.book:8"
    with library.locking(name, "nightly report") as holder:
        anna.open_claims(refresh=2)
        [held] = anna.until(lambda: [claim for claim in claims_of(anna, name) if claim["state"] == "Using"])
        assert (held["label"], held["kind"]) == ("nightly report", "exclusive")
        assert held["holder"] == f"{socket.gethostname()} / {holder.pid}"
        assert int(held["fence"]) > 0

        with library.locking(name, "inventory"):
            await_line(anna, name, ("nightly report", "Using"), ("inventory", "Pending"))
            anna.picture("claims")
        await_line(anna, name, ("nightly report", "Using"))


def test_an_evicted_holder_loses_its_lock_and_the_log_of_the_admin_has_it(library: Library, anna: Person) -> None:
    name = "catalogue.book:9"
    with library.locking(name, "runaway") as holder:
        anna.open_claims(refresh=2, search=name)
        await_line(anna, name, ("runaway", "Using"))
        anna.open_claims(search=name)
        anna.one("input.action-select").click()
        anna.send("#changelist-form input[type=submit]")
        assert "runaway" in anna.one("#content").text  # it asks before it evicts
        assert holder.poll() is None
        anna.send("#content input[type=submit]")
        assert anna.texts(".messagelist .success")[0].startswith("1 claim was evicted.")
        assert claims_of(anna, name) == []
        assert holder.wait(20) == 70
    anna.open("/admin/")
    assert any(name in noted for noted in anna.texts(".actionlist .deletelink"))


def test_the_page_of_a_book_shows_who_has_a_copy_and_who_waits_for_one(anna: Person) -> None:
    anna.open("/books/1/")
    anna.send("[aria-label='Borrow 0001-1']")
    anna.send("main > form button")
    assert "Ana Almeida" in anna.texts("td .lent")[0]
    assert "Ana Almeida" in anna.texts("main > ul:not(.messages) li")[0]
    anna.picture("book")
