"""The readable key of a name on the server, its slot, and the node of each slot.

Source for clusters: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
"""

import re
from binascii import crc_hqx
from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import unquote

from interlock.core.claims import SEPARATOR
from interlock.stores.redis.resp import Reply, pack
from interlock.stores.redis.settings import Address

KEY_PREFIX = "interlock:2:{"  # 2 is the version of the format of a line
SLOTS = 16384
CLUSTER_SLOTS = pack("CLUSTER", "SLOTS")
Shares: TypeAlias = list[tuple[int, int, Address]]
"""Ranges of slots (first, last) and the node that serves each, in order."""


_IN_NAME = str.maketrans({"%": "%25", "}": "%7D"})
_IN_NAMESPACE = _IN_NAME | str.maketrans({":": "%3A"})


def line_of(key: str) -> str:
    """Return the server's key of a line; the part in braces is the hash tag of a cluster."""
    namespace, _, name = key.partition(SEPARATOR)
    return f"{KEY_PREFIX}{namespace.translate(_IN_NAMESPACE)}:{name.translate(_IN_NAME)}}}"


def pattern_of(prefix: str) -> str:
    """Return the SCAN pattern of all lines whose keys begin with `prefix`: "", or a namespace and the separator."""
    if not prefix:
        return KEY_PREFIX + "*}"
    quoted = re.sub(r"[\\*?\[\]]", r"\\\g<0>", prefix[:-1].translate(_IN_NAMESPACE))
    return f"{KEY_PREFIX}{quoted}:*}}"


def key_of(line: str) -> str:
    """Return the key (namespace and name) of a line."""
    namespace, _, name = line[len(KEY_PREFIX) : -1].partition(":")
    return unquote(namespace) + SEPARATOR + unquote(name)


def slot_of(key: str) -> int:
    """Return the slot of a key; only the text in its first pair of braces counts, if it is not empty."""
    start = key.find("{")
    end = key.find("}", start + 1)
    tag = key[start + 1 : end] if 0 <= start < end - 1 else key
    return crc_hqx(tag.encode(), 0) % SLOTS


def host_or(announced: bytes | str | None, answered: str) -> str:
    """Return the host that a cluster announces; if it announces none, the host of the node that answered."""
    host = announced.decode() if isinstance(announced, bytes) else announced
    return answered if host in (None, "", "?") else str(host)


def shares_of(reply: Reply, answered: str, remap: Callable[[Address], Address] | None) -> Shares:
    """Parse the reply to CLUSTER SLOTS.

    Args:
        reply: the reply; empty from a node that has left the cluster.
        answered: the host of the node that sent it.
        remap: maps an announced address to one that can be reached from here.
    """
    found = []
    for first, last, primary, *_ in reply:
        address = host_or(primary[0], answered), int(primary[1])
        found.append((first, last, address if remap is None else remap(address)))
    return sorted(found)
