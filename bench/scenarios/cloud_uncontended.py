"""Acquire and release of one name in etcd and in a bucket, without contention, beside two writing requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.contestants import needs
from bench.contestants.redis_raw import key_of
from bench.model import Beside, Contestant, Facts, Place, Scenario, Target, Unavailable
from bench.scenarios import pairs

ETCD, S3 = "interlock etcd", "interlock S3"
TRANSACTIONS, PUTS = "two transactions of etcd", "two conditional writes of S3"


def ours(kind: str) -> Any:
    """Our lock."""

    def make(place: Place) -> Any:
        import interlock

        return place.closing.enter_context(interlock.connect(place.facts[kind])).lock(place.name)

    return make


class Transactions:
    """The least possible lock in etcd: a transaction that writes a key, and one that deletes it, by httpx."""

    def __init__(self, place: Place) -> None:
        import httpx

        from tests.servers.etcd import coded

        where = place.facts["etcd"].replace("etcd:", "http:")
        self._client = place.closing.enter_context(httpx.Client(base_url=where, trust_env=False))
        key = coded(key_of(place))
        self._put = json.dumps({"success": [{"request_put": {"key": key, "value": coded(200 * "x")}}]})
        self._delete = json.dumps({"success": [{"request_delete_range": {"key": key}}]})

    def acquire(self) -> None:
        self._client.post("/v3/kv/txn", content=self._put)

    def release(self) -> None:
        self._client.post("/v3/kv/txn", content=self._delete)


class Puts:
    """The same in a bucket: two conditional writes, each on the version of the write before."""

    def __init__(self, place: Place) -> None:
        from obstore.store import S3Store

        about = json.loads(place.facts["s3 store"])
        self._store = S3Store(about.pop("bucket"), **about)
        self._path, self._number = key_of(place), 0
        self._version: Any = self._store.put(self._path, b"0")

    def acquire(self) -> None:
        self._number += 1
        mode = {name: value for name, value in self._version.items() if value is not None}
        self._version = self._store.put(self._path, b"%d " % self._number * 40, mode=mode)  # type: ignore[arg-type]

    release = acquire


@contextmanager
def stage() -> Iterator[Facts]:
    """An etcd with its default settings, and a SeaweedFS."""
    from tests.servers import EtcdServer, Missing, SeaweedServer
    from tests.servers.bucket import BUCKET, KEY, SECRET

    try:
        with EtcdServer(config={"heartbeat-interval": "100", "election-timeout": "1000"}) as etcd:
            with SeaweedServer() as weed:
                about = {
                    "bucket": BUCKET, "endpoint": f"http://{weed.host}:{weed.port}", "access_key_id": KEY,
                    "secret_access_key": SECRET, "region": "us-east-1", "virtual_hosted_style_request": False,
                    "client_options": {"allow_http": True},
                }  # fmt: skip
                yield {"url": "redis://nowhere", "etcd": etcd.url, "s3": weed.url, "s3 store": json.dumps(about)}
    except Missing as missing:
        raise Unavailable(str(missing)) from missing


HTTPX, OBSTORE = needs.module("httpx"), needs.module("obstore")
SCENARIO: Scenario[pairs.Batch] = Scenario(
    key="cloud_uncontended",
    title="Uncontended acquire+release of one name in etcd and in a bucket, one process",
    groups=frozenset({"etcd", "bucket"}),
    contestants=(
        Contestant(ETCD, pairs.calls(ours("etcd")), HTTPX, "ours", "two transactions"),
        Contestant(TRANSACTIONS, pairs.calls(Transactions), HTTPX, "limit", "httpx; no lock"),
        Contestant(S3, pairs.calls(ours("s3")), OBSTORE, "ours", "two conditional writes"),
        Contestant(PUTS, pairs.calls(Puts), OBSTORE, "limit", "obstore; no lock"),
    ),
    metrics=pairs.METRICS,
    work=pairs.work,
    fold=pairs.fold,
    beside=(Beside(TRANSACTIONS), Beside(PUTS)),
    targets=(
        Target("at most 1.5 x two transactions", ETCD, "us", 1 / 1.5, True, Beside(TRANSACTIONS)),
        Target("at most 1.3 x two conditional writes", S3, "us", 1 / 1.3, True, Beside(PUTS)),
    ),
    stage=stage,
)
