"""A protocol that is run step by step: what it must ask for, and the replies that it is given."""

from collections.abc import Generator
from typing import Any

import pytest


def played(op: Generator[Any, Any, Any], *steps: tuple[Any, Any]) -> Any:
    """Let a protocol run, and return its result.

    Args:
        op: the protocol.
        steps: what it must ask for, and the reply; an exception is raised there.
    """
    reply = None
    for wanted, next_reply in steps:
        assert _go_on(op, reply) == wanted
        reply = next_reply
    with pytest.raises(StopIteration) as ended:
        _go_on(op, reply)
    return ended.value.value


def _go_on(op: Generator[Any, Any, Any], reply: Any) -> Any:
    return op.throw(reply) if isinstance(reply, Exception) else op.send(reply)
