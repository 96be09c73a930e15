"""Private servers for tests and benchmarks: on free ports, in temporary folders, gone with their owner."""

from servers.browser import BrowserPrograms, browser_programs
from servers.cluster import RedisCluster
from servers.distant import DistantCluster
from servers.home import Missing, NotStarted
from servers.mariadb import MariaServer
from servers.needs import available, need
from servers.pgbouncer import PgBouncer
from servers.postgres import PostgresServer
from servers.proxy import Proxy
from servers.redis_server import RedisServer
from servers.resp import Refused, Wire
from servers.sentinel import RedisSentinel
from servers.tls import TlsFiles

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
