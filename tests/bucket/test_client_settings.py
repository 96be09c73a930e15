"""Settings of the client of a bucket, in the URL and by `config`: they reach the server, and secrets stay hidden."""

import asyncio
import base64
import pickle
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
from obstore.store import MemoryStore

import interlock
from interlock.api.connect import open_store
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.redaction import masked
from interlock.stores.bucket import lines
from tests.servers import Proxy, SeaweedServer, need

KEY = base64.b64encode(b"k" * 32).decode()
CUSTOMER = {"server_side_encryption": "sse-c", "sse_customer_key_base64": KEY}


@pytest.fixture(scope="module")
def seaweed() -> Iterator[SeaweedServer]:
    need("seaweedfs")
    with SeaweedServer() as started:
        yield started


@pytest.fixture
def proxy(seaweed: SeaweedServer) -> Iterator[Proxy]:
    with Proxy(seaweed.host, seaweed.port) as started:
        yield started


@pytest.fixture
def s3(seaweed: SeaweedServer, proxy: Proxy) -> str:
    """The URL of an empty place, by the proxy."""
    return seaweed.at(uuid4().hex).replace(f"{seaweed.host}:{seaweed.port}", f"{proxy.host}:{proxy.port}")


def test_lines_are_encrypted_by_a_key_of_the_customer(proxy: Proxy, s3: str) -> None:
    with interlock.connect(s3, config=CUSTOMER) as locks, locks.lock("a") as grant:
        assert [view.id for view in locks.claims("a")] == [grant.id]
        assert f"x-amz-server-side-encryption-customer-key: {KEY}".encode() in proxy.sent
        with interlock.connect(s3) as without, pytest.raises(StoreError):
            without.lock("a").acquire(timeout=0)
        with interlock.connect(f"{s3}&server_side_encryption=sse-c&sse_customer_key_base64={KEY}") as others:
            assert others.lock("a").acquire(timeout=0) is None


async def tried(url: str, config: Mapping[str, object] | None) -> None:
    async with interlock.aconnect(url, config=config) as locks:
        await locks.lock("a").acquire(timeout=0)


KMS = {"server_side_encryption": "aws:kms", "aws_sse_kms_key_id": "the-key"}


@pytest.mark.parametrize("by", ["URL", "config"])
def test_the_key_of_a_service_reaches_the_server(proxy: Proxy, s3: str, by: str) -> None:
    more = "".join(f"&{name}={value}" for name, value in KMS.items()) if by == "URL" else ""
    with pytest.raises(StoreError):  # SeaweedFS has no such service
        asyncio.run(tried(s3 + more, None if by == "URL" else KMS))
    assert b"x-amz-server-side-encryption: aws:kms" in proxy.sent
    assert b"x-amz-server-side-encryption-aws-kms-key-id: the-key" in proxy.sent


def test_settings_of_http_reach_every_kind_of_server(server: Any, url: str) -> None:
    with Proxy(server.host, server.port) as proxy:
        url = url.replace(f"{server.host}:{server.port}", f"{proxy.host}:{proxy.port}")
        with interlock.connect(url, config={"client_options": {"default_headers": {"x-team": "books"}}}) as locks:
            locks.lock("a").acquire().release()
        assert b"x-team: books" in proxy.sent


def test_the_encryption_key_of_azure_reaches_the_server() -> None:
    need("azurite")
    from tests.servers import AzuriteServer

    with AzuriteServer() as azurite, Proxy(azurite.host, azurite.port) as proxy:
        url = azurite.at("a").replace(f"{azurite.host}:{azurite.port}", f"{proxy.host}:{proxy.port}")
        with interlock.connect(url, config={"encryption_key": KEY}) as locks, pytest.raises(StoreError):
            locks.lock("a").acquire(timeout=0)  # Azurite has no such keys
        assert f"x-ms-encryption-key: {KEY}".encode() in proxy.sent


URL = "s3://key:5ecret@bucket?endpoint=http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("url", "config", "says"),
    [
        (f"{URL}&endpont=x", {}, "'endpont' is not valid.*Options: endpoint, region, timeout"),
        (URL, {"sse": "x"}, "'sse' is not valid"),
        (URL, {"client_options": {"nope": "x"}}, "Invalid key: nope"),
        (URL, {"client_options": "x"}, "must be a dict"),
        (URL, {1: "a"}, "config must be a dict"),
        (URL, {b"sse": "x"}, "config must be a dict"),
        (URL, "x", "config must be a dict"),
        (URL, [("sse", "x")], "config must be a dict"),
        (URL, {"session_token": "", "bogus": "1"}, "Options: endpoint, region, timeout"),
        (URL, {"session_token": None}, "NoneType|None"),
        (URL, {"server_side_encryption": "rot13"}, "Invalid encryption type"),
        (URL, {"timeout": "1s"}, "timeout is an option of the URL"),
        (f"{URL}&server_side_encryption=AES256", {"server_side_encryption": "AES256"}, "is an option of the URL"),
        (f"{URL}&conditional_put=disabled", {}, "locks need conditional writes"),
        (URL, {"AWS_CONDITIONAL_PUT": "disabled"}, "locks need conditional writes"),
        (f"{URL}&server_side_encryption=", {}, "exactly one value"),
        ("az://acc:a2V5@c", {"encryption_key": "5ecret"}, "Invalid encryption key"),
    ],
)
def test_settings_that_do_not_fit_are_refused(url: str, config: Mapping[str, object], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        interlock.connect(url, config=config)
    assert "5ecret" not in str(caught.value)


@pytest.mark.parametrize("url", ["memory://", "file:///tmp/locks", "redis://127.0.0.1:1", MemoryStore()])
def test_other_stores_take_no_such_settings(url: object) -> None:
    with pytest.raises(InvalidArgument, match="config="):
        interlock.connect(url, config={"a": "b"})


def test_locks_with_settings_are_not_sent_to_another_process() -> None:
    """Without its settings, the copy would lock on another server."""
    url = "s3://key:word@bucket?region=eu-central-1"
    with interlock.connect(url, config={"aws_endpoint": "http://127.0.0.1:1"}) as locks:
        with pytest.raises(InvalidArgument, match="cannot be sent to another process"):
            pickle.dumps(locks.lock("a"))


def test_two_servers_of_one_bucket_have_two_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(lines, "clock_of", lambda server, path: names.append(server) or lines.BucketClock(path))
    for config in ({}, {"aws_endpoint": "http://127.0.0.1:1"}, {"aws_endpoint": "http://127.0.0.1:2"}):
        open_store("s3://user:word@locks", config=config).queue()
    assert len(set(names)) == 3


def test_secrets_of_settings_are_not_shown() -> None:
    with interlock.connect(f"{URL}&sse_customer_key_base64={KEY}&server_side_encryption=sse-c") as locks:
        assert KEY not in repr(locks) + repr(locks.lock("a"))
        with pytest.raises(StoreError) as caught:
            locks.lock("a").acquire(timeout=0)
        assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["sse_customer_key_base64", "encryption_key", "account_key", "sas_key", "session_token"]
)
def test_secret_options_of_a_url_are_masked(name: str) -> None:
    assert masked(f"s3://bucket?{name}=abc&region=x") == f"s3://bucket?{name}=***&region=x"


def test_names_of_keys_are_not_masked() -> None:
    url = "s3://bucket?access_key_id=abc&sse_kms_key_id=k"
    assert masked(url) == url
