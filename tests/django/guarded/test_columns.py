"""Each type of column: every change is found, however small; a value that nobody changed is never refused."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connection, connections
from guarded.helpers import refused, save, sql_of
from guarded.library.models import Everything, Letter

from interlock.django.guarded import model_fields, state_tag
from interlock.django.guarded.model_fields import comparison_of

ON = settings.DATABASE
NOON = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)

CHANGES: dict[str, list[tuple[Any, Any, Any]]] = {
    "text": [
        ("read", "theirs", "mine"),
        ("Read", "read", "mine"),  # the column compares without regard to case
        ("a", "a ", "mine"),  # and to blanks at the end
        ("é", "e", "mine"),
        ("", " ", "mine"),
        ("100 % 'quoted' \\ \" {}", "theirs", "mine"),
        ("日本 🦊", "日本", "mine"),
        (None, "", "mine"),
        ("", None, "mine"),
        ("read", None, "mine"),
        (None, "theirs", "mine"),
    ],
    "number": [(1, 2, 3), (0, None, 3), (None, 0, 3), (2**62, 2**62 + 1, 3), (-1, 1, 3)],
    "amount": [
        (Decimal("1.1"), Decimal("1.1000000001"), Decimal(3)),
        (Decimal("0.1"), None, Decimal(3)),
        (Decimal("12345.67"), Decimal("12345.68"), Decimal(3)),
    ],
    "ratio": [
        (0.1, 0.1 + 2**-55, 3.0),
        (1e300, 1.0000000000000002e300, 3.0),
        (1 / 3, None, 3.0),
        (5e-324, 1.0, 3.0),
    ],
    "yes": [(True, False, None), (None, False, True), (True, None, False)],
    "day": [(date(2024, 2, 29), date(2024, 3, 1), date(2024, 1, 1)), (None, date(1, 1, 1), date(2024, 1, 1))],
    "moment": [
        (NOON, NOON + timedelta(microseconds=1), NOON + timedelta(days=1)),
        (NOON, None, NOON + timedelta(days=1)),
    ],
    "hour": [(time(12, 0, 0, 1), time(12, 0, 0, 2), time(1)), (time(0), None, time(1))],
    "span": [
        (timedelta(microseconds=1), timedelta(microseconds=2), timedelta(1)),
        (timedelta(-1), timedelta(1), timedelta(2)),
    ],
    "raw": [
        (b"\x00\xff'\\", b"\x00\xff'", b"mine"),
        (b"a", b"A", b"mine"),
        (b"a", b"a ", b"mine"),
        (b"", None, b"mine"),
    ],
    "key": [(UUID(int=1), UUID(int=2), UUID(int=3)), (UUID(int=1), None, UUID(int=3))],
    "address": [("10.0.0.1", "10.0.0.2", "10.0.0.3"), ("::1", "::2", "::3"), ("::1", None, "::3")],
    "data": [
        ({"a": 1}, {"a": 2}, {"a": 3}),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": 0}]}, {}),
        ([1], [1.0], [3]),
        ([1], [True], [3]),
        (["é日🦊'\\\""], ["é日🦊'\\"], []),
        (["a"], ["A"], []),
        (["a"], ["a "], []),
        ({}, None, {"a": 3}),
        (None, {}, {"a": 3}),
        (0.1, 0.2, 3),
        ("x", "y", "z"),
    ],
    "cover": [("a.txt", "A.txt", "b.txt"), ("a.txt", "", "b.txt")],
}  # fmt: skip
CASES = [(field, *case) for field, cases in CHANGES.items() for case in cases]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}: {case[1]!a:.20}-{case[2]!a:.20}")
def case(request: pytest.FixtureRequest) -> tuple[str, Any, Any, Any]:
    """A field, the value that was read, the other writer's value, and mine."""
    found: tuple[str, Any, Any, Any] = request.param
    return found


def test_a_change_of_somebody_else_is_noticed(case: tuple[str, Any, Any, Any]) -> None:
    field, read, theirs, mine = case
    Everything.objects.create(**{field: read})
    one, two = Everything.objects.get(), Everything.objects.get()
    save(one, **{field: theirs})
    assert set(refused(save, two, **{field: mine}).fields) == {field}
    Everything.objects.get().refresh_from_db()


def test_an_unchallenged_change_is_written_in_one_statement(case: tuple[str, Any, Any, Any]) -> None:
    field, *values = case
    Everything.objects.create(**{field: values[-1]})
    mine = Everything.objects.get()
    for value in values:
        assert len(sql_of(save, mine, **{field: value})) == 1
    for value in values:
        again = Everything.objects.get()
        assert len(sql_of(save, again, **{field: value})) == 1


@pytest.mark.parametrize("fetched", [False, True], ids=["created", "fetched"])
def test_what_was_read_is_no_change(case: tuple[str, Any, Any, Any], fetched: bool) -> None:
    field, *values = case
    for value in values:
        made = Everything.objects.create(**{field: value})
        assert sql_of((Everything.objects.get(pk=made.pk) if fetched else made).save) == []


class TestUnstable:
    """A column whose value can't be compared in the database is compared in Python, while its row is locked."""

    def test_what_somebody_has_changed_is_refused(self) -> None:
        Letter.objects.create(secret="read")
        mine = Letter.objects.get()
        Letter.objects.update(secret="theirs")
        assert refused(save, mine, secret="mine").fields["secret"].theirs == "theirs"
        assert Letter.objects.get().secret == "theirs"

    def test_what_has_not_changed_is_not_written(self) -> None:
        Letter.objects.create(secret="read")
        mine = Letter.objects.get()
        sql = sql_of(save, mine, subject="subject")
        assert len(sql) == 1
        assert "secret" not in sql[0]

    def test_json_that_was_written_in_another_style_is_written(self) -> None:
        Everything.objects.create(data={"a": 1})
        table = Everything._meta.db_table
        with connection.cursor() as cursor:
            cursor.execute(f"""UPDATE {table} SET data = '{{"b":  [1,2],"a":1.50}}'""")
        mine = Everything.objects.get()
        mine.data["a"] = 2
        mine.save()
        assert Everything.objects.get().data == {"b": [1, 2], "a": 2}

    def test_a_json_null_is_written(self) -> None:
        Everything.objects.create(data={"a": 1})
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE {Everything._meta.db_table} SET data = 'null'")
        mine = Everything.objects.get()
        assert mine.data is None
        save(mine, data={"a": 2})
        assert Everything.objects.get().data == {"a": 2}

    def test_a_column_of_an_unknown_kind_is_compared_under_a_lock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(model_fields, "comparison_of", lambda field, connection: None)
        monkeypatch.setattr(Everything, "_guarded_plan", None)
        Everything.objects.create(number=1)
        mine = Everything.objects.get()
        Everything.objects.update(number=2)
        assert refused(save, mine, number=3).fields["number"].theirs == 2


class TestOtherDatabases:
    """On databases that are not tested here, values are compared in Python, while the row is locked."""

    def product(self, vendor: str) -> Any:
        """Return the tests' connection, which claims to be to another database product."""
        made: Any = connections["default"].copy()
        made.vendor = vendor
        made.mysql_is_mariadb = False
        return made

    @pytest.mark.parametrize("field", ["text", "data", "number"])
    def test_an_unknown_database_compares_nothing(self, field: str) -> None:
        assert comparison_of(Everything._meta.get_field(field), self.product("unknown")) is None

    def test_mysql_compares_all_but_json(self) -> None:
        assert comparison_of(Everything._meta.get_field("number"), self.product("mysql")) is not None
        assert comparison_of(Everything._meta.get_field("data"), self.product("mysql")) is None


if ON == "postgresql":
    from django.db.backends.postgresql.psycopg_any import NumericRange
    from guarded.library.models import Shelf

    class TestPostgreSQL:
        @pytest.mark.parametrize(
            ("field", "read", "theirs", "mine"),
            [
                ("labels", ["a"], ["A"], ["b"]),
                ("labels", ["a"], ["a "], ["b"]),
                ("labels", [], ["a"], ["b"]),
                ("labels", ["é,'\"{}"], [], ["b"]),
                ("rows", [[1, 2], [3, 4]], [[1, 2], [3, 5]], []),
                ("span", NumericRange(1, 2), NumericRange(1, 3), None),
                ("span", None, NumericRange(1, 3), NumericRange(1, 4)),
            ],
        )
        def test_a_change_is_noticed_and_what_was_read_is_no_change(
            self, field: str, read: Any, theirs: Any, mine: Any
        ) -> None:
            Shelf.objects.create(**{field: read})
            one, two, three = (Shelf.objects.get() for _ in range(3))
            sql = sql_of(save, one, **{field: theirs})
            assert len(sql) == (2 if field == "span" else 1)  # the stored form of a range is read
            refused(save, two, **{field: mine})
            assert sql_of(three.save) == []

        def test_a_normalized_range_is_not_a_change_of_others(self) -> None:
            shelf = Shelf.objects.create(span=NumericRange(1, 3, "[]"))
            assert state_tag(shelf) == state_tag(Shelf.objects.get())
            save(shelf, span=NumericRange(1, 4, "[]"))
            assert state_tag(shelf) == state_tag(Shelf.objects.get())

        def test_an_array_that_was_changed_in_place_is_noticed(self) -> None:
            Shelf.objects.create(labels=["a"], rows=[[1]])
            mine, theirs = Shelf.objects.get(), Shelf.objects.get()
            mine.rows[0].append(2)
            mine.rows[0][0] = 0
            mine.save(update_fields=["rows"])
            theirs.labels.append("b")
            theirs.save()
            shelf = Shelf.objects.get()
            assert (shelf.labels, shelf.rows) == (["a", "b"], [[0, 2]])

        def test_a_change_of_case_is_noticed_in_a_column_that_has_none(self) -> None:
            with connection.cursor() as cursor:
                cursor.execute(
                    "CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
                )
                cursor.execute(
                    "ALTER TABLE library_shelf ALTER name TYPE varchar(20) COLLATE caseless, "
                    "ALTER labels TYPE varchar(20)[] COLLATE caseless"
                )
            try:
                for field, read, theirs, mine in (("name", "a", "A", "b"), ("labels", ["a"], ["A"], ["b"])):
                    Shelf.objects.all().delete()
                    Shelf.objects.create(**{field: read})
                    assert Shelf.objects.filter(**{field: theirs}).exists()
                    one, two = Shelf.objects.get(), Shelf.objects.get()
                    assert len(sql_of(save, one, **{field: theirs})) == 1
                    refused(save, two, **{field: mine})
            finally:
                with connection.cursor() as cursor:
                    cursor.execute(
                        "ALTER TABLE library_shelf ALTER name TYPE varchar(20), ALTER labels TYPE varchar(20)[]"
                    )
                    cursor.execute("DROP COLLATION caseless")

        def test_types_without_equality_are_compared_under_a_lock(self) -> None:
            assert comparison_of(SimpleNamespace(db_type=lambda connection: "point"), connection) is None
