"""A private master with a replica, watched by Sentinels, for tests and benchmarks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.servers.home import Home, eventually
from tests.servers.redis_server import Kind, RedisServer

MASTER = "mymaster"
WATCHER, CLIENT = "watcher", "client"  # users, and their passwords
SENTINELS = 3

FAST = {"info-period": 500, "ping-period": 300, "ask-period": 50, "publish-period": 500, "election-timeout": 1000}
"""How often the Sentinels look, in ms; theirs are seconds.

During a fail-over they look at a replica once in 1,000 ms, whatever is set. They promote none that they looked at
more than three info-periods or five ping-periods ago, and they undo a promotion that was not published for four
publish-periods: all of these have to be longer than 1,000 ms.
"""


class Sentinel(RedisServer):
    """One Sentinel; it takes the place of a server's program and configuration."""

    def _command(self) -> Sequence[str | Path]:
        return [*super()._command(), "--sentinel"]


class RedisSentinel:
    """A master, a replica and three Sentinels on free ports of 127.0.0.1; use it as a context manager.

    Args:
        kind: "valkey" or "redis".
        down_after: milliseconds without an answer after which a server counts as down.
        login: True to let the Sentinels and clients log in as users of their own, which `cut_off` needs.

    Attributes:
        servers: the two servers, whichever is the master.
        sentinels: those who watch them.

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
        # Only the first one may begin a fail-over, the others vote: two who begin at once split the votes.
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
        """Wait until all agree on who is the master, and the other one follows it, as far as it runs."""
        eventually(self._is_settled, self._failure, "Sentinels with a master and a replica")

    def _is_settled(self) -> bool:
        """Do all agree on who is the master, and does the other one follow it, as far as it runs?"""
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
        """How clients connect: `redis+sentinel://host:port,host:port/mymaster`."""
        user = f"{CLIENT}:{CLIENT}@" if self._login else ""
        return f"redis+sentinel://{user}{','.join(f'{each.host}:{each.port}' for each in self.sentinels)}/{MASTER}"

    @property
    def master(self) -> RedisServer:
        """The server that the Sentinels name as the master."""
        _, port = self.sentinels[0].command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return next(server for server in self.servers if server.port == int(port))

    def replicate(self) -> None:
        """Return when the replica has all that the master has been told so far.

        WAIT would not do: it waits for what its own connection has written, and every `command` has its own.
        """
        master = self.master
        written = int(master.info("replication")["master_repl_offset"])
        replicas = [server for server in self.servers if server is not master and server.running]

        def has_all() -> bool:
            return all(int(each.info("replication").get("slave_repl_offset", -1)) >= written for each in replicas)

        eventually(has_all, self._failure, "the replica to have it all")

    def fail_over(self, by_kill: bool = False) -> RedisServer:
        """Have the replica promoted, and return it when all Sentinels name it and it takes writes.

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
        """Let neither the Sentinels nor the replica reach the master, which clients still can; return it.

        Another one is promoted soon, of which it does not hear.
        """
        old = self.master
        with old.wire() as wire:
            wire.ask("ACL", "SETUSER", WATCHER, "off")
            wire.ask("ACL", "SETUSER", "default", "resetpass", f">{CLIENT}")  # who has not logged in may do nothing
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

    def __enter__(self) -> "RedisSentinel":
        return self

    def __exit__(self, *why: object) -> None:
        self.close()


def _agrees(sentinel: Sentinel, master: RedisServer, replicas: Sequence[RedisServer]) -> bool:
    """Does this Sentinel know the master, the other Sentinels, and replicas that it could promote?"""
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
