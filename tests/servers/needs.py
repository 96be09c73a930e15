"""Tests whose server is not installed: they are skipped with a message, or fail if the environment has `CI` set."""

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from tests.servers.browser import browser_programs
from tests.servers.bucket import azurite_program, weed_program
from tests.servers.clock import compiler
from tests.servers.debian import debootstrap_program
from tests.servers.dynamo import dynalite_program
from tests.servers.etcd import etcd_program
from tests.servers.home import Closing, Missing
from tests.servers.hosts import host_programs
from tests.servers.mariadb import mariadb_programs
from tests.servers.mounts import glusterfs_program, rclone_program, sshfs_program
from tests.servers.pgbouncer import pgbouncer_program
from tests.servers.postgres import postgres_programs
from tests.servers.redis_server import binary
from tests.servers.tls import openssl
from tests.servers.uwsgi import uwsgi_program
from tests.servers.windows import wine_program

C = TypeVar("C", bound=Closing)

KINDS: dict[str, Callable[[], object]] = {
    "valkey": lambda: binary("valkey"),
    "redis": lambda: binary("redis"),
    "tls": openssl,
    "postgres": postgres_programs,
    "pgbouncer": pgbouncer_program,
    "mariadb": mariadb_programs,
    "etcd": etcd_program,
    "seaweedfs": weed_program,
    "azurite": azurite_program,
    "dynalite": dynalite_program,
    "browser": browser_programs,
    "clock": compiler,
    "hosts": host_programs,
    "uwsgi": uwsgi_program,
    "windows": wine_program,
    "debian": debootstrap_program,
    "sshfs": sshfs_program,
    "glusterfs": glusterfs_program,
    "rclone": rclone_program,
}


ONLY_SAID = {"hosts", "azurite", "dynalite", "uwsgi", "windows", "debian", "sshfs", "glusterfs", "rclone"}
"""Kinds whose tests are skipped even with `CI` set: a privilege that can't be installed, packages from npm only,
which not every machine reaches, programs that must be compiled (forks by the C library are tested everywhere), wine,
which runs on one kind of processor, another Debian, which needs root, and file systems of FUSE, which a container may
not mount."""


def available(kind: str) -> str | None:
    """Return why a server of this kind can't be started here; None if it can.

    Args:
        kind: "valkey", "redis", "tls" (certificates), "postgres", "pgbouncer", "mariadb", "etcd", "seaweedfs",
            "azurite", "dynalite", "browser", "clock" (of a server, which is set), "hosts" (network namespaces),
            "uwsgi", "windows" (wine), "debian" (newer Pythons), "sshfs", "glusterfs" or "rclone" (mounts).
    """
    if kind not in KINDS:
        raise ValueError(f"one of {', '.join(KINDS)}, not {kind!r}")
    try:
        KINDS[kind]()
    except Missing as error:
        return str(error)
    return None


def need(kind: str) -> None:
    """In a test or a fixture: continue only if such a server can be started.

    If not, the test fails if the environment has `CI` set, except for kinds in `ONLY_SAID`; otherwise it is skipped,
    and the summary says so.

    Args:
        kind: as for `available`.
    """
    import pytest

    reason = available(kind)
    if reason is None:
        return
    if os.environ.get("CI") and kind not in ONLY_SAID:
        pytest.fail(f"NOT TESTED on {kind}, and CI is set: {reason}", pytrace=False)
    pytest.skip(f"NOT TESTED on {kind}: {reason}")


def serving(kind: str, make: Callable[[], C]) -> Iterator[C]:
    """For a fixture: yield a server that `make` starts, if it can be started, and end it afterwards.

    Args:
        kind: as for `need`.
        make: starts the server.
    """
    need(kind)
    with make() as server:
        yield server
