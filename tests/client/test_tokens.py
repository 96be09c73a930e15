"""Tokens: to which store they belong."""

import os
from pathlib import Path

import pytest

import interlock
from interlock.client.tokens import identity, read

SAME = [
    ("redis://localhost", "rediss://user:***@127.0.0.1:6379/0"),
    ("redis://[::1]:6379/2", "valkey://localhost/2"),
    ("postgresql://me@DB.example/app", "postgresql+psycopg://you:***@db.example:5432/app?sslmode=require"),
    ("mysql://h/app", "mariadb+pymysql://h:3306/app/"),
    ("etcd://h:2379,i/locks", "etcds://h,i:2379/locks"),
    ("file:///a%20b/", "file://localhost/a b"),
    ("sqlite:////a/b.db", "sqlite:////a/../a/b.db"),
]
OTHER = [
    ("redis://h/1", "redis://h/2"),
    ("redis://h", "redis://h:6380"),
    ("redis://h", "postgresql://h"),
    ("redis://h:26379", "redis://h:2379"),
    ("postgresql://h/a", "postgresql://h/b"),
    ("postgresql://h/a", "postgresql://h/a?table=locks"),
    ("s3://bucket/a", "s3://bucket/a?endpoint=https://minio"),
    ("file:///a", "file:///b"),
]


@pytest.mark.parametrize(("one", "another"), SAME)
def test_spellings_of_one_store_are_the_same(one: str, another: str) -> None:
    assert identity(one) is not None
    assert identity(one) == identity(another)


@pytest.mark.parametrize(("one", "another"), OTHER)
def test_different_stores_are_different(one: str, another: str) -> None:
    assert identity(one) != identity(another)


def test_a_client_of_the_program_has_no_identity() -> None:
    assert identity("RedisStore") is None


def test_a_link_to_the_folder_is_the_same_store(tmp_path: Path) -> None:
    os.symlink(tmp_path / "locks", tmp_path / "link")
    assert identity((tmp_path / "locks").as_uri()) == identity((tmp_path / "link").as_uri())


def test_the_error_for_another_store_shows_no_secret(tmp_path: Path) -> None:
    with interlock.connect((tmp_path / "locks").as_uri()) as locks:
        token = locks.lock("book").acquire().detach()
        with interlock.connect((tmp_path / "other").as_uri()) as others:
            with pytest.raises(interlock.InvalidArgument) as caught:
                others.attach(token)
            assert token not in str(caught.value)
            assert read(token).id not in str(caught.value)
        assert locks.release(token)
