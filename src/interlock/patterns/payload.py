"""The payload of a run of `once`, of which the store keeps only a keyed digest.

Follows the section about fingerprints of draft-ietf-httpapi-idempotency-key-header.  The digest (BLAKE2b, RFC 7693)
is keyed by the name of the run, so that equal payloads of two names can't be recognized.  The digest is stored in the
value of the record, and at the beginning of the label of the running claim.
"""

import json
import re
from collections.abc import Sequence

from interlock.core.claims import USING, ClaimView, shown_value
from interlock.core.errors import InvalidArgument, PayloadMismatch

try:
    from _blake2 import blake2b  # the same as hashlib's, but hashlib loads OpenSSL
except ImportError:
    from hashlib import blake2b

DIGEST_BYTES = 16
MARK = "payload:"
MARKED = re.compile(rf"{MARK}([0-9a-f]{{{2 * DIGEST_BYTES}}})(?: |$)")


def canonical(payload: object) -> bytes:
    """Return a payload as bytes: bytes themselves, JSON values with sorted keys and without spaces.

    Args:
        payload: bytes, or a value that JSON can represent.

    Raises:
        InvalidArgument: the payload is neither.
    """
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return b"bytes " + bytes(payload)
    try:
        text = json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"payload must be bytes or a JSON value without NaN and infinity, not {shown_value(payload)} ({error}). "
            f"Pass the body of the request, or the values that identify the work."
        ) from error
    return b"json " + text.encode()


def digest_of(key: str, data: bytes) -> str:
    """Return the digest of a payload.

    Args:
        key: the key of the run: namespace and name.
        data: the payload, as `canonical` returns it.
    """
    secret = blake2b(key.encode(), digest_size=32).digest()
    return blake2b(data, digest_size=DIGEST_BYTES, key=secret).hexdigest()


def labelled(digest: str, label: str) -> str:
    """Return the label of a claim with a payload; the digest comes first, because some stores shorten labels."""
    return f"{MARK}{digest} {label}".rstrip()


def recorded(fence: int, digest: str, text: str) -> str:
    """Return the value of a record, "FENCE:DIGEST RESULT", or "FENCE RESULT" without a payload."""
    return f"{fence}:{digest} {text}" if digest else f"{fence} {text}"


def refuse_recorded(name: str, digest: str, value: str) -> None:
    """Raise PayloadMismatch if the value of a record has another digest; a record without one matches."""
    theirs = value.partition(" ")[0].partition(":")[2]
    if theirs not in ("", digest):
        raise PayloadMismatch(
            f"The run {name!r} has completed with another payload. Send the first payload again to get its result, "
            f"or choose a new name (a new idempotency key) for new work.",
            name,
        )


def refuse_running(name: str, digest: str, views: Sequence[ClaimView]) -> None:
    """Raise PayloadMismatch if the holder among the claims of a name has another digest."""
    for view in views:
        found = MARKED.match(view.label) if view.state == USING else None
        if found is not None and found[1] != digest:
            raise PayloadMismatch(
                f"The run {name!r} is in progress with another payload. Send the first payload again to get its "
                f"result, or choose a new name (a new idempotency key) for new work.",
                name,
            )
