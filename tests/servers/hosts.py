"""Private hosts for tests: network namespaces, each connected to this host by a cable that can lose packets.

The cables are veth pairs. Lost packets go to an unused hardware address, so the sender gets no error.
(`tc netem` is not in every kernel: for latency use a `Proxy`.)
"""

import itertools
import os
import subprocess
from pathlib import Path

from tests.servers.home import Closing, Home, Missing, eventually, program

_counter = itertools.count()
NOBODY = "02:00:00:00:00:01"  # an unused hardware address
PROGRAMS = ("ip", "nsenter", "unshare")


def host_programs() -> None:
    """Check that private hosts can be made.

    Raises:
        Missing: they can't be made; the message says why.
    """
    for name in PROGRAMS:
        program(name, "apt-get install iproute2 util-linux")
    tried = subprocess.run(["unshare", "--net", "ip", "link", "add", "type", "veth"], capture_output=True, text=True)
    if tried.returncode:
        raise Missing(f"network namespaces and veth need root and a kernel that has them: {tried.stderr.strip()}")


class Host:
    """A private host; it ends with its home.

    Args:
        home: the home that ends it.
        here: the address of this side of its cable.
        address: its own address.

    Attributes:
        before: the words before a command that make it run there.
    """

    def __init__(self, home: Home, here: str, address: str) -> None:
        name = f"il{os.getpid()}-{next(_counter)}"
        process = home.spawn(name, ["unshare", "--net", "sleep", "infinity"], log=home.folder / "log")
        net = Path(f"/proc/{process.pid}/ns/net")
        mine = Path("/proc/self/ns/net").readlink()
        eventually(lambda: net.readlink() != mine, lambda: None, "a network namespace")
        self.before = ("nsenter", f"--net={net}")
        self._here, self._address, self._cable = here, address, name
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(process.pid))
        _ip("address", "add", f"{here}/32", "peer", f"{address}/32", "dev", name)
        _ip("address", "add", f"{address}/32", "peer", f"{here}/32", "dev", "eth0", there=self.before)
        _ip("link", "set", "lo", "up", there=self.before)
        _ip("link", "set", "eth0", "up", there=self.before)
        _ip("link", "set", name, "up")

    def pull(self) -> None:
        """Disconnect its cable."""
        _ip("link", "set", self._cable, "down")

    def plug(self) -> None:
        """Connect its cable again."""
        _ip("link", "set", self._cable, "up")

    def lose_requests(self) -> None:
        """Lose all packets that it sends, until `heal`."""
        _ip("neighbour", "replace", self._here, "lladdr", NOBODY, "dev", "eth0", there=self.before)

    def lose_replies(self) -> None:
        """Lose all packets that are sent to it, until `heal`."""
        _ip("neighbour", "replace", self._address, "lladdr", NOBODY, "dev", self._cable)

    def heal(self) -> None:
        """Stop losing packets."""
        for device, there in ((self._cable, ()), ("eth0", self.before)):
            _ip("neighbour", "flush", "dev", device, "nud", "permanent", there=there)


class Hosts(Closing):
    """Two hosts on cables to this one, which has the same address on both; use it as a context manager.

    Attributes:
        address: the address of this host.
        ann, bob: the private hosts.

    Raises:
        Missing: as `host_programs`.
    """

    def __init__(self) -> None:
        host_programs()
        self._home = Home("hosts")
        net = (os.getpid() * 8 + next(_counter)) % 16_384 * 4  # 198.18.0.0/15 is for tests of networks
        self.address, ann, bob = (f"198.18.{net // 256}.{net % 256 + last}" for last in (1, 2, 3))
        try:
            self.ann = Host(self._home, self.address, ann)
            self.bob = Host(self._home, self.address, bob)
        except BaseException:
            self._home.close()
            raise

    def close(self) -> None:
        """End both hosts."""
        self._home.close()


def _ip(*words: str, there: tuple[str, ...] = ()) -> None:
    subprocess.run([*there, "ip", *words], check=True, capture_output=True)
