"""Private servers for tests and benchmarks: on free ports, in temporary folders, gone with their owner."""

from tests.servers.browser import BrowserPrograms, browser_programs
from tests.servers.bucket import AzuriteServer, SeaweedServer
from tests.servers.clock import Stepped
from tests.servers.cluster import RedisCluster
from tests.servers.delayed_cluster import DistantCluster
from tests.servers.etcd import EtcdCluster, EtcdServer
from tests.servers.home import Missing, NotStarted
from tests.servers.hosts import Host, Hosts
from tests.servers.mariadb import REPLICATED, MariaReplica, MariaServer
from tests.servers.mounts import GlusterMounts, Mounts, RcloneMounts, SshfsMounts
from tests.servers.needs import available, need, serving
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresReplica, PostgresServer
from tests.servers.proxy import Proxy
from tests.servers.redis_server import RedisServer
from tests.servers.resp import Refused, Wire
from tests.servers.sentinel import RedisSentinel
from tests.servers.tls import TlsFiles
from tests.servers.uwsgi import Uwsgi

__all__ = [
    "AzuriteServer",
    "SeaweedServer",
    "BrowserPrograms",
    "DistantCluster",
    "EtcdCluster",
    "EtcdServer",
    "Host",
    "Hosts",
    "GlusterMounts",
    "Mounts",
    "RcloneMounts",
    "SshfsMounts",
    "MariaReplica",
    "MariaServer",
    "REPLICATED",
    "Missing",
    "NotStarted",
    "PgBouncer",
    "PostgresReplica",
    "PostgresServer",
    "Proxy",
    "RedisCluster",
    "RedisSentinel",
    "RedisServer",
    "Refused",
    "Stepped",
    "TlsFiles",
    "Uwsgi",
    "Wire",
    "available",
    "browser_programs",
    "need",
    "serving",
]
