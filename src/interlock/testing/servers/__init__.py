"""Private servers for tests and benchmarks: on free ports, in temporary folders, gone with their owner."""

from interlock.testing.servers.browser import BrowserPrograms, browser_programs
from interlock.testing.servers.cluster import RedisCluster
from interlock.testing.servers.distant import DistantCluster
from interlock.testing.servers.home import Missing, NotStarted
from interlock.testing.servers.mariadb import MariaServer
from interlock.testing.servers.needs import available, need
from interlock.testing.servers.pgbouncer import PgBouncer
from interlock.testing.servers.postgres import PostgresServer
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.redis_server import RedisServer
from interlock.testing.servers.resp import Refused, Wire
from interlock.testing.servers.sentinel import RedisSentinel
from interlock.testing.servers.tls import TlsFiles

__all__ = [
    "BrowserPrograms",
    "DistantCluster",
    "MariaServer",
    "Missing",
    "NotStarted",
    "PgBouncer",
    "PostgresServer",
    "Proxy",
    "RedisCluster",
    "RedisSentinel",
    "RedisServer",
    "Refused",
    "TlsFiles",
    "Wire",
    "available",
    "browser_programs",
    "need",
]
