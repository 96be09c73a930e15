"""After any order of reads and saves of several writers, each field has the value of the last permitted write."""

import pytest
from guarded.library.models import Book
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.django.guarded import StaleObject

PEOPLE = 3
FIELDS = ("name", "status", "notes")

STEPS = st.lists(
    st.tuples(
        st.integers(0, PEOPLE - 1),
        st.one_of(
            st.just(("read",)),
            st.tuples(st.just("change"), st.sampled_from(FIELDS), st.integers(0, 3)),
            st.just(("save",)),
            st.tuples(st.just("save only"), st.sampled_from(FIELDS)),
            st.tuples(st.just("refresh only"), st.sampled_from(FIELDS)),
        ),
    ),
    max_size=25,
)


class Person:
    """A writer with an instance, and a model of the values that he has read and written."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.read({})

    def read(self, row: dict[str, str]) -> None:
        self.book = Book.objects.get(pk=self.key)
        self.seen = {field: getattr(self.book, field) for field in FIELDS}

    def refresh(self, field: str) -> None:
        self.book.refresh_from_db(fields=[field])
        self.seen[field] = getattr(self.book, field)

    def save(self, row: dict[str, str], fields: tuple[str, ...]) -> None:
        """Save, and check that exactly the expected happened."""
        changed = {each for each in fields if getattr(self.book, each) != self.seen[each]}
        mine = {each: getattr(self.book, each) for each in changed}
        stale = {each for each in changed if row[each] != self.seen[each]}
        some = None if fields == FIELDS else fields
        if not stale:
            self.book.save(update_fields=some)
            row.update(mine)
            self.seen.update(mine)
            return
        with pytest.raises(StaleObject) as refused:
            self.book.save(update_fields=some)
        assert {name: conflict.theirs for name, conflict in refused.value.fields.items()} == {
            each: row[each] for each in stale
        }


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_no_update_is_lost(steps: list[tuple[int, tuple[object, ...]]]) -> None:
    made = Book.objects.create(name="0", status="0", notes="0")
    row = dict.fromkeys(FIELDS, "0")
    people = [Person(made.pk) for _ in range(PEOPLE)]
    for who, (what, *details) in steps:
        person = people[who]
        if what == "read":
            person.read(row)
        elif what == "change":
            setattr(person.book, str(details[0]), str(details[1]))
        elif what == "save":
            person.save(row, FIELDS)
        elif what == "save only":
            person.save(row, (str(details[0]),))
        else:
            person.refresh(str(details[0]))
        stands = Book.objects.values(*FIELDS).get(pk=made.pk)
        assert stands == row
