"""doctor: what is looked at on every server of a database."""

import time
from typing import Any

from interlock.core.claims import Check
from interlock.core.effects import Ask, Op

SKEW = 1.0  # seconds that two clocks may differ without a word
ROUNDS = 5


def clock_and_answers(server: Any, question: Any) -> Op[list[Check]]:
    """Look at a server's clock, and at how long it takes to answer.

    Args:
        server: as an `effects.Server`.
        question: asks it for the microseconds since 1970, in one row.
    """
    times = []
    for _ in range(ROUNDS):
        sent = time.perf_counter()
        now = (yield Ask(server, question))[0][0]
        times.append(time.perf_counter() - sent)
    skew = time.time() - int(now) / 1e6
    words = f"differs from this machine's by {skew * 1000:.0f} ms"
    if abs(skew) > SKEW:
        words += "; leases are judged by the server's clock alone, which must not jump: let NTP slew it"
    return [
        Check("clock", "ok" if abs(skew) <= SKEW else "warn", words),
        Check("server", "ok", f"answers in {min(times) * 1e6:.0f} us"),
    ]
