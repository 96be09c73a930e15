"""A private Cluster serves and moves its slots; private Sentinels promote the replica."""

import pytest

from tests.servers import RedisCluster, RedisSentinel, Refused, need


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_a_cluster_serves_all_slots_and_moves_them(kind: str) -> None:
    need(kind)
    with RedisCluster(3, kind) as cluster:
        assert cluster.url == f"redis+cluster://127.0.0.1:{cluster.nodes[0].port}"
        keys = [f"key {number}" for number in range(20)]
        for key in keys:
            cluster.node_of(key).command("SET", key, "here")
        assert {cluster.node_of(key).port for key in keys} == {node.port for node in cluster.nodes}
        before = cluster.node_of(keys[0])
        after = cluster.move(keys[0])
        assert after is cluster.node_of(keys[0])
        assert after.command("GET", keys[0]) == "here"
        with pytest.raises(Refused, match=f"MOVED .*{after.port}"):
            before.command("GET", keys[0])
        folder = cluster.nodes[0].folder.parent
    assert not folder.exists()


@pytest.mark.parametrize("kind", ["valkey", "redis"])
@pytest.mark.parametrize("by_kill", [False, True], ids=["ordered", "killed"])
def test_sentinels_promote_the_replica(kind: str, by_kill: bool) -> None:
    need(kind)
    with RedisSentinel(kind) as group:
        assert group.url.startswith("redis+sentinel://127.0.0.1:")
        assert group.url.endswith("/mymaster")
        old = group.master
        old.command("SET", "key", "here")
        group.replicate()
        new = group.fail_over(by_kill=by_kill)
        assert new is not old
        assert new.command("GET", "key") == "here"
        new.command("SET", "key", "there")
        assert old.running is not by_kill
        folder = new.folder.parent
    assert not folder.exists()
