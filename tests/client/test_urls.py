"""URLs with several hosts are parsed in the same way by all versions of Python."""

from urllib.parse import SplitResult

import pytest

import interlock
from interlock.api.connect import split
from interlock.core.errors import InvalidArgument


@pytest.mark.parametrize("hosts", ["h1,[::1]:7,h3:8", "[::1]:7,h1", "me:a,b@h1:1,[fe80::1]", "me:a,b@[::1]:5"])
def test_an_ipv6_address_may_stand_after_another_host(hosts: str) -> None:
    url = f"redis+sentinel://{hosts}/service/3?socket_timeout=1#f"
    assert split(url) == SplitResult("redis+sentinel", hosts, "/service/3", "socket_timeout=1", "f")


def test_a_url_of_several_hosts_may_have_an_ipv6_address() -> None:
    interlock.connect("postgresql://me@h1:5432,[::1]:5433/db?target_session_attrs=read-write").close()


@pytest.mark.parametrize("url", ["redis+sentinel://h1,[::1:7/s", "redis+sentinel://me:secret@h1,[x]y/s"])
def test_what_is_no_address_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a store URL") as caught:
        split(url)
    assert "secret" not in str(caught.value)
