"""Temporary certificates for servers on this machine."""

import subprocess
from pathlib import Path

from tests.servers.home import Missing, program

NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost"
KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl() -> Path:
    """Return the path of the command.

    Raises:
        Missing: it is not installed; the message says how to get it.
    """
    return program("openssl", "apt-get install openssl")


class TlsFiles:
    """A new authority, and a certificate of it for 127.0.0.1 and localhost; needs the command `openssl`.

    Args:
        folder: the folder for the files, which is created.

    Attributes:
        authority: the certificate of the authority, for clients.
        certificate, key: the server's.

    Raises:
        Missing: `openssl` is not installed.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.authority = folder / "authority.pem"
        self.certificate = folder / "server.pem"
        self.key = folder / "server.key"
        authority_key = folder / "authority.key"
        request = folder / "request.pem"
        names = folder / "names"
        names.write_text(NAMES)
        _openssl(
            "req", "-x509", *KEY, "-keyout", authority_key, "-out", self.authority, "-subj", "/CN=interlock tests",
            "-days", "2", "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip
        _openssl("req", *KEY, "-keyout", self.key, "-out", request, "-subj", "/CN=localhost")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.authority, "-CAkey", authority_key, "-out", self.certificate,
            "-days", "2", "-extfile", names, "-set_serial", "1",
        )  # fmt: skip


def _openssl(*words: str | Path) -> None:
    done = subprocess.run([openssl(), *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Missing(f"`openssl {words[0]}` failed: {done.stderr}")
