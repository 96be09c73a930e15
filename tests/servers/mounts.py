"""Programs that mount file systems of FUSE, for tests of shared folders."""

import os
from pathlib import Path

from tests.servers.home import Missing, program

DEVICE = Path("/dev/fuse")


def sshfs_program() -> Path:
    """Return the path of sshfs; its server is `sftp-server`, without a daemon.

    Raises:
        Missing: it is not installed, or nothing can be mounted here; the message says why.
    """
    program("sftp-server", "apt-get install openssh-sftp-server", "/usr/lib/openssh:/usr/libexec/openssh")
    return _mounter("sshfs", "apt-get install sshfs openssh-sftp-server")


def glusterfs_program() -> Path:
    """Return the path of GlusterFS's client; its servers are `glusterd` and the bricks that it starts.

    Raises:
        Missing: it is not installed, or nothing can be mounted here; the message says why.
    """
    program("glusterd", "apt-get install glusterfs-server")
    if os.geteuid() != 0:
        raise Missing("glusterd needs root")
    return _mounter("glusterfs", "apt-get install glusterfs-client")


def _mounter(name: str, how: str) -> Path:
    found = program(name, how)
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise Missing(f"{name} needs {DEVICE}: {error.strerror}") from error
    return found
