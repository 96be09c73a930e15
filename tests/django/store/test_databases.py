"""The locks connect with the same settings of a database as Django."""

from collections.abc import Callable, Iterator
from typing import Any

import django
import pytest
from django.conf import settings
from django.db import connections
from django.test import override_settings

from interlock import InvalidArgument, StoreError
from interlock.django import locks
from interlock.django.databases import libpq_of, pymysql_of

POOL = {"pool": True} if django.VERSION >= (5, 1) else {}  # older Django passes it to libpq

Described = Callable[..., None]


@pytest.fixture
def described(databases: None) -> Iterator[Described]:
    """Gives the database "apart" the settings of the tests' database, with the test's changes."""
    vendor = {"postgresql": "postgresql", "mariadb": "mysql"}[settings.DATABASE]

    def describe(**place: Any) -> None:
        connections.settings["apart"] = {
            **connections.settings["default"], "ENGINE": f"django.db.backends.{vendor}", "NAME": "site", **place
        }  # fmt: skip

    describe()
    yield describe
    connections.settings.pop("apart", None)


if settings.DATABASE == "postgresql":

    def test_libpq_is_told_what_django_is_told(described: Described) -> None:
        described(USER="me", PASSWORD="secret", HOST="/run/pg", PORT="5433",
                  OPTIONS={"sslmode": "verify-full", "sslrootcert": "/ca.pem", "passfile": "/p", **POOL,
                           "server_side_binding": True, "isolation_level": 2, "application_name": "me"})  # fmt: skip
        told = libpq_of("apart")
        wanted = {"user": "me", "password": "secret", "host": "/run/pg", "port": "5433", "dbname": "site",
                  "sslmode": "verify-full", "sslrootcert": "/ca.pem", "passfile": "/p", "client_encoding": "utf8",
                  "application_name": "me"}  # fmt: skip
        assert {name: value for name, value in told.items() if not name.startswith("keepalives")} == wanted

    def test_a_service_says_where_the_database_is(described: Described) -> None:
        described(NAME="", HOST="", PORT="", USER="", OPTIONS={"service": "shop"})
        told = libpq_of("apart")
        assert told["service"] == "shop"
        assert not {"dbname", "host", "port", "user"} & set(told)

    def test_what_libpq_does_not_know_is_refused(described: Described) -> None:
        described(OPTIONS={"sslmod": "require"})
        with pytest.raises(InvalidArgument, match=r"DATABASES\['apart'\] has an option 'sslmod'"):
            libpq_of("apart")

    def test_a_database_without_a_name_is_refused(described: Described) -> None:
        described(NAME="")
        with pytest.raises(InvalidArgument, match="supply the NAME"):
            libpq_of("apart")

    def test_a_role_that_django_assumes_is_that_of_the_locks(described: Described) -> None:
        described(NAME=connections["default"].settings_dict["NAME"], OPTIONS={"assume_role": "some one"})
        with connections["default"].cursor() as cursor:
            cursor.execute('CREATE ROLE "some one"')
            cursor.execute('GRANT ALL ON ALL TABLES IN SCHEMA public TO "some one"')
            try:
                with override_settings(INTERLOCK={"default": {"ALIAS": "apart"}}):
                    with locks.lock("a"):
                        cursor.execute("SELECT 1 FROM interlock_line WHERE id <> ''")
                        assert cursor.fetchone()
                    cursor.execute('REVOKE ALL ON ALL TABLES IN SCHEMA public FROM "some one"')
                    with pytest.raises(Exception, match="permission denied"):
                        locks.lock("a").acquire()
            finally:
                cursor.execute('DROP OWNED BY "some one"; DROP ROLE "some one"')


if settings.DATABASE == "mariadb":

    def test_pymysql_is_told_what_django_is_told(described: Described) -> None:
        described(USER="me", PASSWORD="secret", HOST="/run/my.sock", PORT="",
                  OPTIONS={"charset": "utf8mb4", "init_command": "SET x = 1", "read_default_file": "/my.cnf",
                           "isolation_level": "repeatable read"})  # fmt: skip
        told = pymysql_of("apart")
        wanted = {"user": "me", "password": "secret", "unix_socket": "/run/my.sock", "database": "site",
                  "init_command": "SET x = 1", "read_default_file": "/my.cnf"}  # fmt: skip
        assert told == wanted

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            ({"ssl": {"ca": "/ca", "cert": "/c", "key": "/k"}}, {"ssl_ca": "/ca", "ssl_cert": "/c", "ssl_key": "/k"}),
            ({"ssl_mode": "DISABLED"}, {"ssl_disabled": True}),
            ({"ssl_mode": "preferred"}, {}),
            (
                {"ssl_mode": "VERIFY_IDENTITY", "ssl": {"ca": "/ca"}},
                {"ssl_ca": "/ca", "ssl_verify_cert": True, "ssl_verify_identity": True},
            ),
        ],
    )
    def test_tls_in_the_words_of_mysqlclient(
        described: Described, given: dict[str, Any], wanted: dict[str, Any]
    ) -> None:
        described(OPTIONS=given)
        assert {name: value for name, value in pymysql_of("apart").items() if name.startswith("ssl")} == wanted

    def test_encryption_that_is_required_is_required(described: Described) -> None:
        described(OPTIONS={"ssl_mode": "REQUIRED"})
        assert pymysql_of("apart")["ssl"].check_hostname is False

    @pytest.mark.parametrize("option", [{"nonsense": 1}, {"ssl_mode": "PERHAPS"}, {"ssl": {"cipher": "x"}}])
    def test_what_pymysql_does_not_know_is_refused(described: Described, option: dict[str, Any]) -> None:
        described(OPTIONS=option)
        with pytest.raises(InvalidArgument, match=r"DATABASES\['apart'\]"):
            pymysql_of("apart")


@pytest.mark.skipif(settings.DATABASE == "sqlite", reason="SQLite has no passwords")
def test_no_error_shows_the_password() -> None:
    gone = {**connections.settings["default"], "HOST": "127.0.0.1", "PORT": "1", "NAME": "/nowhere/at/all"}
    connections.settings["gone"] = {**gone, "USER": "me", "PASSWORD": "tell-nobody"}
    try:
        with override_settings(INTERLOCK={"default": {"ALIAS": "gone"}}), pytest.raises(StoreError) as caught:
            locks.lock("a").acquire(timeout=1)
        assert "tell-nobody" not in str(caught.value)
        assert "tell-nobody" not in repr(locks.store)
    finally:
        del connections.settings["gone"]
