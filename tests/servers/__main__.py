"""`python -m tests.servers KIND…`: which Debian packages bring the servers that are not here yet."""

import sys

from tests.servers.needs import available

PACKAGES = {
    "redis": "redis-server",
    "tls": "openssl",
    "postgres": "postgresql",
    "pgbouncer": "pgbouncer",
    "mariadb": "mariadb-server",
    "etcd": "etcd-server",
    "browser": "chromium chromium-driver fonts-dejavu-core",
}


def main(kinds: list[str]) -> int:
    """Print the packages that are missing, in one line; with PostgreSQL comes what sites put before it."""
    kinds = [*kinds, "pgbouncer"] if "postgres" in kinds else kinds
    wanted = [PACKAGES[kind] for kind in kinds if available(kind) is not None]
    print(*wanted)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
