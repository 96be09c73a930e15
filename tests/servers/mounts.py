"""Private file systems for tests: one folder behind two mounts, as two machines have it.

sshfs talks to `sftp-server` over a pipe. GlusterFS is one brick on a free port of 127.0.0.1, and two clients; its
volume is written by hand, with the caches that a usual volume has.
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.servers.home import Closing, Home, Missing, Port, eventually, last_lines, program

DEVICE = Path("/dev/fuse")
SFTP = "/usr/lib/openssh:/usr/libexec/openssh:/usr/libexec:/usr/lib/ssh"
BRICK = """
volume posix
    type storage/posix
    option directory {folder}
end-volume
volume locks
    type features/locks
    subvolumes posix
end-volume
volume threads
    type performance/io-threads
    subvolumes locks
end-volume
volume server
    type protocol/server
    option transport-type tcp
    option transport.socket.listen-port {port}
    option transport.socket.bind-address 127.0.0.1
    option auth.addr.threads.allow 127.0.0.1
    subvolumes threads
end-volume
"""
CLIENT = """
volume client
    type protocol/client
    option transport-type tcp
    option remote-host 127.0.0.1
    option remote-port {port}
    option remote-subvolume threads
end-volume
volume writes
    type performance/write-behind
    subvolumes client
end-volume
volume reads
    type performance/quick-read
    subvolumes writes
end-volume
volume attributes
    type performance/md-cache
    subvolumes reads
end-volume
"""


def sshfs_program() -> Path:
    """Return the path of sshfs; its server is `sftp-server`, without a daemon.

    Raises:
        Missing: it is not installed, or nothing can be mounted here; the message says why.
    """
    sftp_server()
    return _mounter("sshfs", "apt-get install sshfs openssh-sftp-server")


def sftp_server() -> Path:
    """Return the path of the server that sshfs talks to.

    Raises:
        Missing: it is not installed.
    """
    return program("sftp-server", "apt-get install openssh-sftp-server", SFTP)


def glusterfs_program() -> Path:
    """Return the path of GlusterFS's client; its server is `glusterfsd`, with one brick.

    Raises:
        Missing: it is not installed, or nothing can be mounted here; the message says why.
    """
    program("glusterfsd", "apt-get install glusterfs-server")
    return _mounter("glusterfs", "apt-get install glusterfs-client")


def rclone_program() -> Path:
    """Return the path of rclone, whose mounts only emulate a file system.

    Raises:
        Missing: it is not installed, or nothing can be mounted here; the message says why.
    """
    return _mounter("rclone", "apt-get install rclone")


def _mounter(name: str, how: str) -> Path:
    found = program(name, how)
    if os.geteuid() != 0:
        raise Missing(f"the tests of {name} mount as root")
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise Missing(f"{name} needs {DEVICE}: {error.strerror}") from error
    return found


class Mounts(Closing):
    """One folder behind two mounts; use it as a context manager.

    Args:
        what: the name of the file system.

    Attributes:
        source: the folder itself.
        paths: the two mount points.
    """

    def __init__(self, what: str) -> None:
        self._home = Home(what)
        self.source = self._home.folder / "source"
        self.source.mkdir()
        # Elsewhere, since the guard of a home renames it, and a client unmounts the path that it knows.
        self.paths = [Path(tempfile.mkdtemp(prefix=f"interlock-{what}-mount-")) for _ in range(2)]
        try:
            self._start(self._home)
        except BaseException:
            self.close()
            raise

    def _start(self, home: Home) -> None:
        """Start the processes, and mount."""
        raise NotImplementedError

    def _mount(self, number: int, command: Sequence[str | Path]) -> None:
        """Start a client in the foreground, and wait until it has mounted."""
        path, log = self.paths[number], self._home.folder / f"client-{number}"
        words = [*command, path]
        process = self._home.spawn(f"client-{number}", words, log=log, ends=signal.SIGTERM)  # so that it unmounts
        died = lambda: None if process.poll() is None else last_lines(log)  # noqa: E731
        eventually(lambda: path.stat().st_dev != self._home.folder.stat().st_dev, died, f"the mount {path}")

    def close(self) -> None:
        """Unmount, and end all processes; safe to repeat."""
        for path in self.paths:
            with suppress(OSError):
                subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=False)
        self._home.close()
        for path in self.paths:
            with suppress(OSError):
                path.rmdir()


class SshfsMounts(Mounts):
    """A folder behind two mounts of sshfs, each with its own server and its own cache.

    Raises:
        Missing: as `sshfs_program`.
    """

    def __init__(self) -> None:
        self._sshfs, self._server = sshfs_program(), sftp_server()
        super().__init__("sshfs")

    def _start(self, home: Home) -> None:
        command = home.folder / "command"  # sshfs adds words for ssh, which the server would not accept
        command.write_text(f"#!/bin/sh\nexec {self._server}\n")
        command.chmod(0o755)
        for number in range(2):
            self._mount(number, [self._sshfs, "-f", "-o", f"ssh_command={command}", f"nobody:{self.source}"])


class RcloneMounts(Mounts):
    """A folder behind two mounts of rclone.

    Raises:
        Missing: as `rclone_program`.
    """

    def __init__(self) -> None:
        self._program = rclone_program()
        super().__init__("rclone")

    def _start(self, home: Home) -> None:
        for number in range(2):
            words = [
                "--vfs-cache-mode=writes",
                "--config=/dev/null",
                f"--cache-dir={home.folder / f'cache-{number}'}",
            ]
            self._mount(number, [self._program, "mount", *words, f":local:{self.source}"])


class GlusterMounts(Mounts):
    """A volume of GlusterFS behind two mounts.

    Raises:
        Missing: as `glusterfs_program`.
    """

    def __init__(self) -> None:
        self._client = glusterfs_program()
        self._port = Port()
        super().__init__("gluster")

    def _start(self, home: Home) -> None:
        brick, client = home.folder / "brick.vol", home.folder / "client.vol"
        brick.write_text(BRICK.format(folder=self.source, port=self._port.number))
        client.write_text(CLIENT.format(port=self._port.number))
        log = home.folder / "brick"
        words = ["--no-daemon", f"--volfile={brick}", f"--log-file={log}", f"--pid-file={home.folder / 'brick.pid'}"]
        home.spawn("brick", ["glusterfsd", *words], log=home.folder / "brick-output")
        for number in range(2):
            self._mount(
                number, [self._client, "--no-daemon", f"--volfile={client}", f"--log-file={home.folder / 'log'}"]
            )

    def close(self) -> None:
        """As `Mounts.close`."""
        super().close()
        self._port.close()
