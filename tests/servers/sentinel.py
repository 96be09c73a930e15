"""A private master with a replica, watched by Sentinels, for tests and benchmarks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.servers.home import Closing, Home, eventually
from tests.servers.redis_server import Kind, RedisServer

MASTER = "mymaster"
WATCHER, CLIENT = "watcher", "client"  # the names of users, and also their passwords
SENTINELS = 3

FAST = {"info-period": 500, "ping-period": 300, "ask-period": 50, "publish-period": 500, "election-timeout": 1000}
"""The intervals of the Sentinels' checks, in ms; the defaults are seconds.

During a fail-over they check a replica every 1,000 ms, whatever the setting. They promote no replica whose last check
is more than three info-periods or five ping-periods ago, and they undo a promotion that was not published for four
publish-periods: all of these must be longer than 1,000 ms.
"""


class Sentinel(RedisServer):
    """One Sentinel, as a server with another program and configuration."""

    def _command(self) -> Sequence[str | Path]:
        return [*super()._command(), "--sentinel"]


class RedisSentinel(Closing):
    """A master, a replica and three Sentinels on free ports of 127.0.0.1; use it as a context manager.

    Args:
        kind: "valkey" or "redis".
        down_after: milliseconds without a reply after which a server counts as down.
        login: True to let the Sentinels and clients log in as different users, which `cut_off` needs.

    Attributes:
        servers: the two servers, in any role.
        sentinels: the Sentinels.

    Raises:
        Missing, NotStarted: as for `RedisServer`.
    """

    name = MASTER

    def __init__(self, kind: Kind = "valkey", down_after: int = 800, login: bool = False) -> None:
        self._home = Home("sentinel")
        self._login = login
        self.servers: list[RedisServer] = []
        self.sentinels: list[Sentinel] = []
        try:
            first = self._add_server(kind)
            self._add_server(kind, {"replicaof": f"{first.host} {first.port}"})
            for _ in range(SENTINELS):
                self._add_sentinel(kind, first, down_after)
            self.settle()
        except BaseException:
            self.close()
            raise

    def _add_server(self, kind: Kind, config: dict[str, str] | None = None) -> RedisServer:
        fast = {"repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"}
        if self._login:
            fast |= {f"user {each}": f"on >{each} ~* &* +@all" for each in (WATCHER, CLIENT)}
            fast |= {"masteruser": WATCHER, "masterauth": WATCHER}
        self.servers.append(RedisServer(kind, config=fast | (config or {}), home=self._home))
        return self.servers[-1]

    def _add_sentinel(self, kind: Kind, master: RedisServer, down_after: int) -> None:
        # Only the first Sentinel may begin a fail-over, the others vote: two that begin at once split the votes.
        quorum = SENTINELS + 1 if self.sentinels else SENTINELS - 1
        config = {
            f"sentinel monitor {MASTER}": f"{master.host} {master.port} {quorum}",
            f"sentinel down-after-milliseconds {MASTER}": str(down_after),
            f"sentinel failover-timeout {MASTER}": "3000",
        }
        if self._login:
            config |= {f"sentinel auth-user {MASTER}": WATCHER, f"sentinel auth-pass {MASTER}": WATCHER}
        self.sentinels.append(Sentinel(kind, config=config, home=self._home))
        self.sentinels[-1].command("SENTINEL", "DEBUG", *(word for pair in FAST.items() for word in pair))

    def settle(self) -> None:
        """Wait until all agree on the master, and the other server replicates it, if it runs."""
        eventually(self._is_settled, self._failure, "Sentinels with a master and a replica")

    def _is_settled(self) -> bool:
        """Return True if all agree on the master, and the other server replicates it, if it runs."""
        master = self.master
        replicas = [server for server in self.servers if server is not master and server.running]
        return (
            master.info("replication")["role"] == "master"
            and all(server.info("replication").get("master_link_status") == "up" for server in replicas)
            and all(_agrees(sentinel, master, replicas) for sentinel in self.sentinels)
        )

    def _failure(self) -> str | None:
        return next((f"{each.what} {each.port} ended" for each in self.sentinels if not each.running), None)

    @property
    def url(self) -> str:
        """The URL for clients: `redis+sentinel://host:port,host:port/mymaster`."""
        user = f"{CLIENT}:{CLIENT}@" if self._login else ""
        return f"redis+sentinel://{user}{','.join(f'{each.host}:{each.port}' for each in self.sentinels)}/{MASTER}"

    @property
    def master(self) -> RedisServer:
        """The server that the Sentinels name as the master."""
        _, port = self.sentinels[0].command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return next(server for server in self.servers if server.port == int(port))

    def replicate(self) -> None:
        """Wait until the replica has all present data of the master.

        Not by WAIT: it waits for the writes of its own connection only, and each `command` uses a new one.
        """
        master = self.master
        written = int(master.info("replication")["master_repl_offset"])
        replicas = [server for server in self.servers if server is not master and server.running]

        def has_all() -> bool:
            return all(int(each.info("replication").get("slave_repl_offset", -1)) >= written for each in replicas)

        eventually(has_all, self._failure, "the replica to have it all")

    def fail_over(self, by_kill: bool = False) -> RedisServer:
        """Let the replica be promoted, and return it when all Sentinels name it and it accepts writes.

        Args:
            by_kill: True to kill the master and leave it down, False to let it become the replica.
        """
        old = self.master
        if by_kill:
            old.kill()
        else:
            self.sentinels[0].command("SENTINEL", "FAILOVER", MASTER)
        eventually(lambda: self.master is not old and self._is_settled(), self._failure, "a fail-over")
        return self.master

    def cut_off(self) -> RedisServer:
        """Cut off the master from the Sentinels and the replica, but not from clients; return the master.

        The replica is promoted soon; the old master does not learn of that.
        """
        old = self.master
        with old.wire() as wire:
            wire.ask("ACL", "SETUSER", WATCHER, "off")
            wire.ask("ACL", "SETUSER", "default", "resetpass", f">{CLIENT}")  # the default user may do nothing
            wire.ask("CLIENT", "KILL", "USER", WATCHER)
        old.password = CLIENT
        return old

    def until_promoted(self, old: RedisServer) -> RedisServer:
        """Wait until all Sentinels name another master than `old`, and return that."""

        def named() -> set[tuple[str, str]]:
            facts = [_facts(each.command("SENTINEL", "MASTER", MASTER)) for each in self.sentinels]
            return {(each["port"], each["flags"]) for each in facts}

        others = [{(str(each.port), "master")} for each in self.servers if each is not old]
        eventually(lambda: named() in others, self._failure, "another master")
        return self.master

    def close(self) -> None:
        """End all and remove their folder; safe to repeat."""
        for server in (*self.sentinels, *self.servers):
            server.close()
        self._home.close()


def _agrees(sentinel: Sentinel, master: RedisServer, replicas: Sequence[RedisServer]) -> bool:
    """Return True if a Sentinel knows the master, the other Sentinels, and replicas that it could promote."""
    seen = _facts(sentinel.command("SENTINEL", "MASTER", MASTER))
    good = set()
    for flat in sentinel.command("SENTINEL", "REPLICAS", MASTER):
        replica = _facts(flat)
        if replica["flags"] == "slave" and (replica["master-link-status"], replica["master-port"]) == (
            "ok", str(master.port),
        ):  # fmt: skip
            good.add(int(replica["port"]))
    known = (seen["port"], seen["flags"], seen["num-other-sentinels"])
    return known == (str(master.port), "master", str(SENTINELS - 1)) and good == {each.port for each in replicas}


def _facts(flat: list[Any]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
