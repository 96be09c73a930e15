"""The options of a URL: redis://host?socket_timeout=0.5&max_connections=10."""

from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl

from interlock.core.errors import InvalidArgument
from interlock.core.options import flag_in, number_in, seconds_in
from interlock.core.redaction import masked, read

EVERYWHERE = frozenset((
    "username", "password", "client_name", "socket_timeout", "socket_connect_timeout", "max_connections",
))  # fmt: skip
"""Options of every kind of URL."""
TLS = frozenset((
    "ssl_keyfile", "ssl_certfile", "ssl_password", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path",
    "ssl_check_hostname", "ssl_min_version", "ssl_ciphers",
))  # fmt: skip
SENTINEL = frozenset(("sentinel_username", "sentinel_password", "sentinel_ssl"))
WITHOUT_EFFECT = frozenset((
    "protocol", "decode_responses", "encoding", "encoding_errors", "health_check_interval", "retry_on_timeout",
    "socket_read_size", "legacy_responses", "lib_name", "lib_version", "socket_keepalive",
))  # fmt: skip
"""Options of redis-py that are accepted and ignored, so that a program can use one URL for both."""
SECONDS = ("socket_timeout", "socket_connect_timeout")
FLAGS = ("sentinel_ssl",)
CHOICES: Mapping[str, tuple[str, ...]] = {
    "ssl_cert_reqs": ("required", "optional", "none"),
    "ssl_check_hostname": ("true", "false", "True", "False", "yes", "no", "1", "0"),
    "ssl_min_version": ("TLSv1_2", "TLSv1_3", "771", "772"),
}


def options_of(url: SplitResult) -> dict[str, str]:
    """Return the options of a URL.

    Raises:
        InvalidArgument: an option is unknown, given twice, or has a value that is not allowed.
    """
    return read(url, _options_of)


def _options_of(url: SplitResult) -> dict[str, str]:
    known = _known(url.scheme)
    found: dict[str, str] = {}
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name not in known:
            raise InvalidArgument(_unknown(url, name, known))
        if name in found or not value:
            raise InvalidArgument(f"{masked(url.geturl())!r}: give {name} one value")
        found[name] = value
    for name in found.keys() & SECONDS:
        seconds_in(name, found[name])
    for name, least in (("max_connections", 1), ("db", 0), ("replicas", 0)):
        if name in found:
            number_in(name, found[name], least)
    for name in found.keys() & FLAGS:
        flag_in(name, found[name])
    for name in found.keys() & CHOICES.keys():
        if found[name] not in CHOICES[name]:
            raise InvalidArgument(f"{name} is one of {', '.join(CHOICES[name])}, not {found[name][:20]!r}")
    return found


def is_secure(scheme: str) -> bool:
    """Return True if a scheme uses TLS."""
    return scheme.partition("+")[0] in ("rediss", "valkeys")


def _known(scheme: str) -> frozenset[str]:
    kind = scheme.partition("+")[2]
    known = EVERYWHERE | WITHOUT_EFFECT
    if is_secure(scheme) or kind == "sentinel":
        known |= TLS
    if kind == "sentinel":
        known |= SENTINEL
    return known if kind == "cluster" else known | {"db", "replicas"}


def _unknown(url: SplitResult, name: str, known: frozenset[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    if close:
        advice = f"did you mean {close[0]}? "
    elif name in TLS:
        advice = "TLS is asked for by rediss://, valkeys:// or the like; "
    elif name == "db":
        advice = "a cluster has one database; "
    elif name == "replicas":
        advice = "it is for one server, or one that Sentinel names; "
    else:
        advice = ""
    shown = ", ".join(sorted(known - WITHOUT_EFFECT))
    return f"{url.scheme}:// has no option {name!r}: {advice}there are {shown}"
