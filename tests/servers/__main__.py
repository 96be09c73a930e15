"""`python -m tests.servers KIND…`: print the Debian packages of the servers that are not installed."""

import sys

from tests.servers.needs import available

PACKAGES = {
    "redis": "redis-server",
    "tls": "openssl",
    "postgres": "postgresql",
    "pgbouncer": "pgbouncer",
    "mariadb": "mariadb-server",
    "etcd": "etcd-server",
    "windows": "wine64 wine",
    "debian": "debootstrap",
    "sshfs": "sshfs openssh-sftp-server",
    "glusterfs": "glusterfs-server",
    "rclone": "rclone",
    "browser": "chromium chromium-driver fonts-dejavu-core",
}


def main(kinds: list[str]) -> int:
    """Print the missing packages in one line; PostgreSQL includes PgBouncer."""
    kinds = [*kinds, "pgbouncer"] if "postgres" in kinds else kinds
    wanted = [PACKAGES[kind] for kind in kinds if available(kind) is not None]
    print(*wanted)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
